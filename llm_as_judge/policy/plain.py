"""The measure of all else here: the model's own forward pass of one whole sequence, nothing shared, nothing padded."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from llm_as_judge.policy.precision import own_precision
from llm_as_judge.types import Completion


def plain_logprobs(base: Any, completion: Completion) -> Tensor:
    """Log-probs [T] of a completion's tokens at temperature 1, in float32 or wider."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]], device=base.device)
    count = len(completion.token_ids)
    last = {"logits_to_keep": count + 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}
    with own_precision(base):
        logits = base(input_ids=ids, use_cache=False, **last).logits[0, -count - 1 : -1]
    logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    of_completion: Tensor = logprobs.gather(-1, ids[0, -count:, None])[:, 0]
    return of_completion


def apart(one: Tensor, other: Tensor, precision: torch.dtype) -> float:
    """Nats between two ways to the same log-probs, to be compared with ``tolerance``: of the worst token or, in low
    precision, of the mean one. There rounding alone puts a token of small probability half a nat off, while what is
    computed wrongly is off everywhere.
    """
    gaps = (one.cpu() - other.cpu()).abs()
    if not len(gaps):
        return 0.0
    return float(gaps.max() if precision in _WORST else gaps.mean())


def tolerance(precision: torch.dtype) -> float:
    """What ``apart`` may come to.

    Two float32 passes over different batch shapes differ by 1e-6 or so; a wrong mask or scale by 1e-2 and more. In
    bfloat16 two right passes of a pretrained model differ by a hundredth or two in the mean.
    """
    return _WORST.get(precision, 0.1)


_WORST = {torch.float64: 1e-6, torch.float32: 1e-3}
