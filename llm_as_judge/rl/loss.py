"""Policy losses on token log-probabilities, and the distribution those log-probabilities belong to.

Pure tensor functions, no model. Every loss is a *sum* over the micro-batch divided by constants of the whole
optimiser step (``Normaliser``), so the gradient does not depend on how the step is cut into micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "gspo"]
KLEstimator = Literal["k3", "k1"]
ImportanceSampling = Literal["off", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]

#: Bound on log-ratios before exponentiation; beyond it the ratio is clipped anyway.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Names and meaning as in TRL's ``GRPOConfig``, apart from two.

    ``cispo`` caps the ratio at 1 + ``epsilon_high`` (the paper's form; TRL's ``epsilon_high`` is the cap itself).
    ``importance_sampling`` and its cap are TRL's ``vllm_importance_sampling_mode`` and ``..._clip_max``.
    """

    loss_type: LossType = "dr_grpo"
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    beta: float = 0.0
    max_completion_length: int = 1024
    kl_estimator: KLEstimator = "k3"
    importance_sampling: ImportanceSampling = "off"
    importance_sampling_cap: float = 3.0

    def __post_init__(self) -> None:
        kinds = {"loss_type": LossType, "kl_estimator": KLEstimator, "importance_sampling": ImportanceSampling}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if self.importance_sampling_cap <= 0:
            raise ValueError(f"importance_sampling_cap must be > 0, got {self.importance_sampling_cap}")


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Size of the whole optimiser step: scored sequences and their completion tokens, skipped groups
    included.
    """

    sequences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch. ``old_logprobs`` None = on-policy: the detached ``logprobs`` stand in.

    ``sampling_logprobs`` are what the engine reported; without them there is no correction of its arithmetic.
    """

    logprobs: Tensor  # [B, T], with gradient
    advantages: Tensor  # [B]
    mask: Tensor  # [B, T] bool, True at completion tokens
    old_logprobs: Tensor | None = None  # [B, T]
    ref_logprobs: Tensor | None = None  # [B, T], needed where beta > 0
    entropy: Tensor | None = None  # [B, T], for the metric only
    sampling_logprobs: Tensor | None = None  # [B, T]


@dataclass(frozen=True, slots=True)
class LossOutputs:
    """``loss`` is this micro-batch's share of the step's loss; the rest are token sums, to be added up and
    divided.
    """

    loss: Tensor
    tokens: int
    clipped_low: float
    clipped_high: float
    kl: float
    entropy: float
    corrected: float  # tokens whose importance weight was truncated or masked


def policy_loss(inputs: LossInputs, settings: LossSettings, normaliser: Normaliser) -> LossOutputs:
    """Clipped surrogate loss, weighted by the importance of each token, plus ``beta`` times an estimate of
    KL(policy || reference).

    grpo: mean over a sequence's tokens, then over sequences (arXiv 2402.03300). dapo, bnpo: mean over all
    tokens of the step (arXiv 2503.14476; the two differ in TRL only by where tokens are counted). dr_grpo:
    constant divisor, sequences x ``max_completion_length`` (arXiv 2503.20783). cispo: clipped, detached ratio
    times log-prob (arXiv 2506.13585). gspo: one ratio a sequence, the geometric mean of its tokens' (arXiv
    2507.18071). KL estimates after http://joschu.net/blog/kl-approx.html: k1 is unbiased and may be negative,
    but as a loss its gradient has mean zero on-policy; k3 is the usual choice.
    """
    logprobs, mask = inputs.logprobs, inputs.mask
    weight = mask.to(logprobs.dtype)
    lengths = weight.sum(-1, keepdim=True).clamp(min=1)  # [B, 1]
    # Padding may hold anything, NaN included: it must not reach the gradient.
    logprobs = torch.where(mask, logprobs, 0.0)
    old = logprobs.detach() if inputs.old_logprobs is None else torch.where(mask, inputs.old_logprobs, 0.0)
    log_ratio = (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if settings.loss_type == "gspo":
        log_ratio = ((log_ratio * weight).sum(-1, keepdim=True) / lengths).expand_as(log_ratio)
    ratio = log_ratio.exp()
    low, high = 1.0 - settings.epsilon, 1.0 + settings.epsilon_high
    advantages = inputs.advantages.to(logprobs.dtype)[:, None]
    if settings.loss_type == "cispo":
        per_token = -ratio.clamp(max=high).detach() * advantages * logprobs
    else:
        per_token = -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    importance, corrected = importance_weights(old, inputs, settings)
    per_token = per_token * importance
    kl = torch.zeros_like(logprobs)
    if inputs.ref_logprobs is not None:
        delta = (torch.where(mask, inputs.ref_logprobs, 0.0) - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl = delta.exp() - delta - 1.0 if settings.kl_estimator == "k3" else -delta
    if settings.beta:
        if inputs.ref_logprobs is None:
            raise ValueError(f"beta is {settings.beta}, so ref_logprobs are needed")
        per_token = per_token + settings.beta * kl
    per_token = per_token * weight
    if settings.loss_type in ("grpo", "gspo"):
        loss = (per_token / lengths).sum() / max(normaliser.sequences, 1)
    elif settings.loss_type == "dr_grpo":
        loss = per_token.sum() / max(normaliser.sequences * settings.max_completion_length, 1)
    else:
        loss = per_token.sum() / max(normaliser.tokens, 1)
    with torch.no_grad():
        clipped_low = ((ratio < low) & (advantages < 0) & mask).sum()
        clipped_high = ((ratio > high) & (advantages > 0) & mask).sum()
        entropy = 0.0 if inputs.entropy is None else float((torch.where(mask, inputs.entropy, 0.0)).sum())
    return LossOutputs(
        loss=loss,
        tokens=int(mask.sum()),
        clipped_low=float(clipped_low),
        clipped_high=float(clipped_high),
        kl=float((kl.detach() * weight).sum()),
        entropy=entropy,
        corrected=corrected,
    )


def importance_weights(old: Tensor, inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, float]:
    """Weights [B, T] or [B, 1] for the engine's distribution not being the trainer's, and the tokens cut off.

    The weight is exp(``old`` - sampling log-prob), a token's or the sequence's; beyond the cap it is truncated, or
    the token (the sequence) is left out, as in TRL. No gradient.
    """
    one = torch.ones((), dtype=old.dtype, device=old.device)
    if inputs.sampling_logprobs is None or settings.importance_sampling == "off":
        return one, 0.0
    mask, cap = inputs.mask, settings.importance_sampling_cap
    difference = torch.where(mask, old.detach() - inputs.sampling_logprobs.to(old), 0.0)
    if settings.importance_sampling.startswith("sequence"):
        difference = difference.sum(-1, keepdim=True)
    weights = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    beyond = weights > cap
    kept = (
        weights.clamp(max=cap) if settings.importance_sampling.endswith("truncate") else weights.masked_fill(beyond, 0)
    )
    return kept, float((beyond & mask).sum())
