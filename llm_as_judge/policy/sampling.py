"""The distribution that tokens are sampled from, used by the sampler and by the trainer. Pure tensor functions."""

from dataclasses import dataclass

import torch
from torch import Tensor

#: Lowest temperature that is computed with. Lower ones draw the same tokens, but their scores overflow float32.
_COLDEST = 1e-6


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution that completions were drawn from, and are scored under."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


#: The policy's own distribution.
PLAIN = Sampling()


def sampling_logprobs(logits: Tensor, sampling: Sampling = PLAIN, keep: Tensor | None = None) -> Tensor:
    """Log-probabilities [..., V] (float32 or wider) of the distribution that tokens are sampled from.

    Temperature first, then top-k, then top-p over what top-k left, renormalised: the order of Hugging Face and vLLM.
    ``keep`` [...] are ids that are never filtered: a sampled token must not leave the support by a rounding error.
    """
    temperature, top_p, top_k = sampling.temperature, sampling.top_p, sampling.top_k
    if temperature <= 0:
        raise ValueError(f"temperature must be > 0, got {temperature}; greedy decoding has no sampling distribution")
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / max(temperature, _COLDEST)
    kept = top_k if 0 < top_k < logits.shape[-1] else logits.shape[-1]
    if kept < logits.shape[-1]:
        threshold = logits.detach().topk(kept, dim=-1).values[..., -1:]
        logits = _drop(logits, logits < threshold, keep)
    if top_p < 1.0:
        ordered, order = logits.detach().softmax(-1).topk(kept, dim=-1)
        # A token is dropped if the mass before it already reaches top_p; the first always stays.
        drop_ordered = ordered.cumsum(-1) - ordered >= top_p
        drop_ordered[..., 0] = False
        drop = torch.ones_like(logits, dtype=torch.bool).scatter(-1, order, drop_ordered)
        logits = _drop(logits, drop, keep)
    return logits.log_softmax(-1)


def entropy_of(logprobs: Tensor) -> Tensor:
    """Entropy [...] in nats of log-probabilities [..., V] that may be -inf."""
    return -(logprobs.exp() * logprobs).nansum(-1)  # 0 * -inf counts as 0


def _drop(logits: Tensor, drop: Tensor, keep: Tensor | None) -> Tensor:
    if keep is not None:
        drop = drop.scatter(-1, keep[..., None], False)
    return logits.masked_fill(drop, -torch.inf)
