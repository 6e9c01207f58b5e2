"""The proof at the start of a run, on its own first batch: log-probs are those of the model's own forward pass, and the
shared-prefix computation equals the padded one.

It costs two plain forward passes, and both computations of at most ``SEQUENCES`` sequences. A new model, a new release
of torch or transformers, or another device thus cannot train on wrong gradients unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.plain import apart, plain_logprobs, tolerance
from llm_as_judge.policy.scoring import Layout, Sampling
from llm_as_judge.types import Completion

#: Sequences whose log-probabilities are compared, and how many of them have their gradients compared.
SEQUENCES = 16
GRADIENTS_OF = 4

#: Largest difference of the gradient relative to its norm, by the model's precision.
_GRADIENT = {torch.float64: 1e-5, torch.float32: 1e-3}
_LOW_PRECISION = 0.2


@dataclass(frozen=True, slots=True)
class Difference:
    """Nats of the worst log-probability, and |tree - padded| / |padded| of the gradient.

    ``flips``, of ``tokens``, are left out of the first: where ``top_p`` or ``top_k`` cuts between two probabilities
    that are nearly alike, rounding decides what stays, and the distributions differ although the logits agree.
    """

    logprob: float
    gradient: float
    flips: int
    tokens: int


def check_plain(policy: Policy, completions: Sequence[Completion]) -> float:
    """Nats by which the log-probs of the longest and the shortest sequence, padded to each other, are off the model's
    own. Raises ``ConfigError`` where that is too much, or the model is none that can be scored.
    """
    pair = [max(completions, key=_length), min(completions, key=_length)]
    name, base, was_training = policy.base.config.model_type, policy.base, policy.model.training
    if policy.config.lora_dropout:  # the one noise that is wanted
        policy.model.eval()
    try:
        with torch.no_grad():
            scores = policy.logprobs(pair)
            policy.model.eval()
            own = [plain_logprobs(base, completion) for completion in pair]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be trained here ({type(error).__name__}: {error}); docs/architectures.md has what can"
        ) from error
    finally:
        policy.model.train(was_training)
    worst = apart(scores.logprobs[scores.mask], torch.cat(own), base.dtype)
    if not worst <= tolerance(base.dtype):  # not >, so that NaN fails
        raise ConfigError(
            f"log-probabilities of {name} are {worst:.1e} nats off its own forward pass (at most "
            f"{tolerance(base.dtype):g}), so it cannot be trained here; docs/architectures.md has what can"
        )
    return worst


def check_exact(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, budget: int = 2**14
) -> Difference:
    """Compares the two layouts, and raises ``ConfigError`` where they differ.

    Gradients and random states stay as they were.
    """
    compared = completions[:: -(-len(completions) // SEQUENCES)]
    budget = max(1, budget * len(compared) // len(completions))  # as many stages as the whole would take
    kept = [(p, p.grad) for p in policy.trainable_parameters()]
    try:
        with torch.no_grad():
            shared, padded = (_scores(policy, compared, sampling, x, budget) for x in ("tree", "padded"))
        alike = shared.support == padded.support
        logprob = apart(shared.logprobs[alike], padded.logprobs[alike], policy.base.dtype)
        # Without the filters, which come after the logits and are the same code for both: nothing flips here, and
        # nothing is left out.
        few, unfiltered = _relatives(compared), replace(sampling, top_p=1.0, top_k=0)
        tree, rows = (_gradient(policy, few, unfiltered, x, budget) for x in ("tree", "padded"))
        gradient = float((tree - rows).norm() / rows.norm().clamp(min=1e-30))
    except (ConfigError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ConfigError(
            f"prefixes of {policy.base.config.model_type} cannot be shared ({type(error).__name__}: {error}); set "
            "training.shared_prefix=false to forward padded rows"
        ) from error
    finally:
        for parameter, grad in kept:
            parameter.grad = grad
    most_logprob = tolerance(policy.base.dtype)
    most_gradient = _GRADIENT.get(policy.base.dtype, _LOW_PRECISION)
    # not >, so that NaN fails
    if not (logprob <= most_logprob and gradient <= most_gradient):
        raise ConfigError(
            f"on the first batch, the shared-prefix and the padded computation of {policy.base.config.model_type} "
            f"differ by {logprob:.1e} nats in a log-probability (at most {most_logprob:g}) and by {gradient:.1e} in "
            f"the gradient (at most {most_gradient:g}); set training.shared_prefix=false to forward padded rows"
        )
    return Difference(logprob, gradient, int((~alike).sum()), len(alike))


@dataclass(frozen=True, slots=True)
class _Scores:
    """Of all tokens of all completions, one after the other."""

    logprobs: Tensor
    support: Tensor


def _scores(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> _Scores:
    of_sequence: dict[int, tuple[Tensor, Tensor]] = {}
    for batch in policy.micro_batches(completions, sampling, layout, budget):
        scores = batch.scores
        rows = zip(batch.members, scores.logprobs, scores.support, scores.mask, strict=True)
        of_sequence.update((i, (logprobs[mask], support[mask])) for i, logprobs, support, mask in rows)
    logprobs, support = (torch.cat(x) for x in zip(*(of_sequence[i] for i in range(len(completions))), strict=True))
    return _Scores(logprobs, support)


def _gradient(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> Tensor:
    """Gradient [parameters] of a sum that weighs every token differently, in float32 or wider."""
    policy.model.zero_grad(set_to_none=True)
    for batch in policy.micro_batches(completions, sampling, layout, budget):
        scores = batch.scores.logprobs
        at = torch.arange(scores.shape[1], device=scores.device)
        weights = torch.stack([torch.sin(at + 3.0 * i) for i in batch.members])
        (scores * weights * batch.scores.mask).sum().backward()  # type: ignore[no-untyped-call]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.trainable_parameters()]
    return torch.cat([g.flatten().to(torch.promote_types(g.dtype, torch.float32)) for g in grads])


def _relatives(completions: Sequence[Completion]) -> list[Completion]:
    """A few sequences with something in common: two of the first prompt, and others."""
    first = completions[0].prompt_ids
    same = [c for c in completions if c.prompt_ids == first]
    other = [c for c in completions if c.prompt_ids != first]
    first_ones = [*same[: GRADIENTS_OF // 2], *other]
    return [*first_ones, *same[GRADIENTS_OF // 2 :]][:GRADIENTS_OF]


def _length(completion: Completion) -> int:
    return len(completion.prompt_ids) + len(completion.token_ids)
