"""The proof at the start of a run: on its own first batch, the shared-prefix computation equals the padded one.

It costs one padded forward pass of the batch, and a backward pass of a few of its sequences. A new model, a new
release of torch or transformers, or another device thus cannot train on wrong gradients unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llm_as_judge.errors import ConfigError
from llm_as_judge.logprobs.scoring import Layout, Sampling
from llm_as_judge.rl.policy import Policy
from llm_as_judge.types import Completion

#: Sequences whose gradients are compared.
GRADIENTS_OF = 4

#: Largest difference of a log-probability, and of the gradient relative to its norm, by the model's precision.
#: Two float32 passes over different batch shapes differ by 1e-6 or so; a wrong mask by 1e-2 and more.
_TOLERANCE = {torch.float64: (1e-6, 1e-5), torch.float32: (1e-3, 1e-3)}
_LOW_PRECISION = (0.5, 0.2)


@dataclass(frozen=True, slots=True)
class Difference:
    """What was found: nats of the worst log-probability, and |tree - padded| / |padded| of the gradient."""

    logprob: float
    gradient: float


def check_exact(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, budget: int = 2**14
) -> Difference:
    """Compares, and raises ``ConfigError`` where the two differ. Gradients and random states stay as they were."""
    kept = [(p, p.grad) for p in policy.trainable_parameters()]
    try:
        with torch.no_grad():
            shared, padded = (_logprobs(policy, completions, sampling, x, budget) for x in ("tree", "padded"))
        logprob = max(float((a - b).abs().max()) for a, b in zip(shared, padded, strict=True))
        few = _relatives(completions)
        tree, rows = (_gradient(policy, few, sampling, x, budget) for x in ("tree", "padded"))
        gradient = float((tree - rows).norm() / rows.norm().clamp(min=1e-30))
    finally:
        for parameter, grad in kept:
            parameter.grad = grad
    most_logprob, most_gradient = _TOLERANCE.get(policy.base.dtype, _LOW_PRECISION)
    # not <=, so that NaN fails
    if not (logprob <= most_logprob and gradient <= most_gradient):
        raise ConfigError(
            f"on the first batch, the shared-prefix and the padded computation of {policy.base.config.model_type} "
            f"differ by {logprob:.1e} nats in a log-probability (at most {most_logprob:g}) and by {gradient:.1e} in "
            f"the gradient (at most {most_gradient:g}); set training.shared_prefix=false to forward padded rows"
        )
    return Difference(logprob, gradient)


def _logprobs(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    for part in policy.parts(completions, sampling, layout, budget):
        found.update((i, row) for i, row in zip(part.members, part.scores.logprobs, strict=True))
    return [found[i][: len(c.token_ids)] for i, c in enumerate(completions)]


def _gradient(
    policy: Policy, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> Tensor:
    """Gradient [parameters] of a sum that weighs every token differently, in float32 or wider."""
    policy.model.zero_grad(set_to_none=True)
    for part in policy.parts(completions, sampling, layout, budget):
        scores = part.scores.logprobs
        at = torch.arange(scores.shape[1], device=scores.device)
        weights = torch.stack([torch.sin(at + 3.0 * i) for i in part.members])
        (scores * weights * part.scores.mask).sum().backward()  # type: ignore[no-untyped-call]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.trainable_parameters()]
    return torch.cat([g.flatten().to(torch.promote_types(g.dtype, torch.float32)) for g in grads])


def _relatives(completions: Sequence[Completion]) -> list[Completion]:
    """A few sequences with something in common: two of the first prompt, and others."""
    first = completions[0].prompt_ids
    same = [c for c in completions if c.prompt_ids == first]
    other = [c for c in completions if c.prompt_ids != first]
    chosen = [*same[: GRADIENTS_OF // 2], *other]
    return [*chosen, *same[GRADIENTS_OF // 2 :]][:GRADIENTS_OF]
