"""Policy losses on token log-probabilities. Pure tensor functions, no model.

Every loss is a *sum* over the micro-batch divided by constants of the whole optimiser step (``Normaliser``), so the
gradient does not depend on how the step is cut into micro-batches.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from llm_as_judge.config.schema import TrainingConfig

#: Bound on log-ratios before exponentiation, against infinite ones.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Number of scored sequences and their completion tokens in the optimiser step, skipped groups included."""

    sequences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Tensors of one micro-batch.

    Without ``old_logprobs`` the update is on-policy: the detached ``logprobs`` are used. ``sampling_logprobs`` are the
    engine's; without them, differences between engine and trainer are not corrected.
    """

    logprobs: Tensor  # [B, T], with gradient
    advantages: Tensor  # [B]
    mask: Tensor  # [B, T] bool, True at completion tokens
    old_logprobs: Tensor | None = None  # [B, T]
    ref_logprobs: Tensor | None = None  # [B, T], needed if beta > 0
    entropy: Tensor | None = None  # [B, T], for the metric only
    sampling_logprobs: Tensor | None = None  # [B, T]


class LossOutputs(NamedTuple):
    """This micro-batch's share of the step's loss, and sums over its tokens."""

    loss: Tensor
    tokens: float
    kl: float
    entropy: float
    clipped: float
    corrected: float  # tokens whose importance weight was truncated or masked
    difference: float  # of the tokens' log-probs from the engine's, absolute


def policy_loss(inputs: LossInputs, config: TrainingConfig, normaliser: Normaliser) -> LossOutputs:
    """Compute the clipped surrogate loss with importance weights, plus ``beta`` times estimated KL(policy, reference).

    Values of ``loss_type``:

    - grpo: mean over the tokens of a sequence, then over sequences (arXiv 2402.03300).
    - dapo: mean over all tokens of the step (arXiv 2503.14476).
    - dr_grpo: constant divisor, sequences x ``response_max_length`` (arXiv 2503.20783).
    - cispo: clipped, detached ratio times log-prob (arXiv 2506.13585).
    - gspo: one ratio per sequence, the geometric mean of its tokens' ratios (arXiv 2507.18071).

    Settings have TRL's names and meaning, with three exceptions. ``cispo`` caps the ratio at 1 + ``epsilon_high``, as
    in the paper; TRL's ``epsilon_high`` is the cap itself. ``importance_sampling``, its cap and its minimum are TRL's
    ``vllm_importance_sampling_mode``, ``..._clip_max`` and ``..._clip_min``. With ``mask_truncated_completions`` a
    truncated completion counts nowhere; TRL masks its tokens, but its reward stays in the group's mean and deviation,
    and its row in the divisor of grpo, gspo and dr_grpo.

    ``use_bias_correction_kl`` multiplies the KL term by the ratio, so that its gradient is that of the KL itself
    (DeepSeek-V3.2, arXiv 2512.02556). The estimate of the KL is k3 of http://joschu.net/blog/kl-approx.html.
    """
    logprobs, mask = inputs.logprobs, inputs.mask
    weight = mask.to(logprobs.dtype)
    lengths = weight.sum(-1, keepdim=True).clamp(min=1)  # [B, 1]
    # Padding may hold anything, NaN included: it must not reach the gradient.
    logprobs = torch.where(mask, logprobs, 0.0)
    old = logprobs.detach() if inputs.old_logprobs is None else torch.where(mask, inputs.old_logprobs, 0.0)
    log_ratio = (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if config.loss_type == "gspo":
        log_ratio = ((log_ratio * weight).sum(-1, keepdim=True) / lengths).expand_as(log_ratio)
    ratio = log_ratio.exp()
    low, high = 1.0 - config.epsilon, 1.0 + config.epsilon_high
    advantages = inputs.advantages.to(logprobs.dtype)[:, None]
    if config.loss_type == "cispo":
        per_token = -ratio.clamp(max=high).detach() * advantages * logprobs
    else:
        per_token = -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    importance, *compared = importance_weights(old, inputs, config)
    per_token = per_token * importance
    kl = torch.zeros_like(logprobs)
    if inputs.ref_logprobs is not None:
        delta = (torch.where(mask, inputs.ref_logprobs, 0.0) - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl = delta.exp() - delta - 1.0
    if config.beta:
        if inputs.ref_logprobs is None:
            raise ValueError(f"beta={config.beta} needs ref_logprobs")
        per_token = per_token + config.beta * (kl * ratio if config.use_bias_correction_kl else kl)
    per_token = per_token * weight
    if config.loss_type in ("grpo", "gspo"):
        loss = (per_token / lengths).sum() / max(normaliser.sequences, 1)
    elif config.loss_type == "dr_grpo":
        loss = per_token.sum() / max(normaliser.sequences * config.response_max_length, 1)
    else:  # dapo, cispo
        loss = per_token.sum() / max(normaliser.tokens, 1)
    with torch.no_grad():
        clipped = (((ratio < low) & (advantages < 0)) | ((ratio > high) & (advantages > 0))) & mask
        entropy = 0.0 if inputs.entropy is None else float((torch.where(mask, inputs.entropy, 0.0)).sum())
    divergence = float((kl.detach() * weight).sum())
    return LossOutputs(loss, float(mask.sum()), divergence, entropy, float(clipped.sum()), *compared)


def folded(inputs: LossInputs, config: TrainingConfig, normaliser: Normaliser) -> tuple[Tensor, LossOutputs]:
    """Compute advantages [B, T] of single tokens, with which the plain policy gradient, a sum of -advantage x grad
    log-prob, is that of ``policy_loss``, and the latter's outputs.

    Clipping, KL term, importance weights and divisor are functions of the tokens' log-probs: a server that is sent
    these advantages takes the same step (``rl.tinker``).
    """
    logprobs = inputs.logprobs.detach().requires_grad_()
    out = policy_loss(replace(inputs, logprobs=logprobs), config, normaliser)
    (gradient,) = torch.autograd.grad(out.loss, logprobs)
    return -gradient, out._replace(loss=out.loss.detach())


def importance_weights(old: Tensor, inputs: LossInputs, config: TrainingConfig) -> tuple[Tensor, float, float]:
    """Compute weights [B, T], [B, 1] or [] for the engine's distribution, tokens beyond bounds, sum of differences.

    The weight is exp(``old`` - sampling log-prob) of the token or the sequence. Above the cap or below the minimum it
    is truncated, or the token (the sequence) is masked, as in TRL and IcePop (Ling Team 2025). A batch with older
    completions is truncated in any case (``rl.update.Batch.of``). No gradient.
    """
    one = torch.ones((), dtype=old.dtype, device=old.device)
    if inputs.sampling_logprobs is None or config.importance_sampling == "off":
        return one, 0.0, 0.0
    mask, low, cap = inputs.mask, config.importance_sampling_clip_min, config.importance_sampling_cap
    difference = torch.where(mask, old.detach() - inputs.sampling_logprobs.to(old), 0.0)
    apart = float(difference.abs().sum())
    if config.importance_sampling.startswith("sequence"):
        difference = difference.sum(-1, keepdim=True)
    weights = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    beyond, truncates = (weights > cap) | (weights < low), config.importance_sampling.endswith("truncate")
    return weights.clamp(low, cap) if truncates else weights.masked_fill(beyond, 0), float((beyond & mask).sum()), apart
