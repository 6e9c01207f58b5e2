"""The distribution that tokens are sampled from, used by the sampler and by the trainer. Pure tensor functions."""

from dataclasses import dataclass
from typing import NamedTuple

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


class Support(NamedTuple):
    """The tokens that can be drawn; K is the size V of the vocabulary, or less with top-k."""

    logprobs: Tensor  # [..., K], float32 or wider; -inf for tokens that are left out
    ids: Tensor | None  # [..., K]; None: all in order

    def of(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities [...] of ``tokens`` [...]."""
        if self.ids is None:
            return self.logprobs.gather(-1, tokens[..., None])[..., 0]
        found = self.ids == tokens[..., None]
        at = self.logprobs.gather(-1, found.int().argmax(-1, keepdim=True))[..., 0]
        return at.masked_fill(~found.any(-1), -torch.inf)

    def entropy(self) -> Tensor:
        """Compute the entropy [...] in nats."""
        return -(self.logprobs.exp() * self.logprobs).nansum(-1)  # 0 * -inf counts as 0


def sampling_logprobs(logits: Tensor, sampling: Sampling = PLAIN, keep: Tensor | None = None) -> Support:
    """Compute the distribution that tokens are sampled from, given logits [..., V].

    Temperature first, then top-k, then top-p over what top-k left, renormalised: the order of Hugging Face and vLLM.
    Top-k leaves exactly k tokens; of several with the same logit as the last, they would leave all.
    ``keep`` [...] are ids that are never left out: a sampled token must not leave the support by a rounding error.
    """
    temperature, top_p, top_k = sampling.temperature, sampling.top_p, sampling.top_k
    if temperature <= 0:
        raise ValueError(f"temperature must be > 0, got {temperature}; greedy decoding has no sampling distribution")
    kept, ids = None if keep is None else keep[..., None], None
    if 0 < top_k < logits.shape[-1]:
        # In the vocabulary's order: two nearly equal tokens must not change places between batch shapes.
        ids = logits.detach().topk(top_k, dim=-1, sorted=False).indices.sort(-1).values
        if kept is None:
            logits = logits.gather(-1, ids)
        else:  # one more column, empty if the token is among the others
            own = logits.gather(-1, kept).masked_fill((ids == kept).any(-1, keepdim=True), -torch.inf)
            logits, ids = torch.cat([logits.gather(-1, ids), own], -1), torch.cat([ids, kept], -1)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / max(temperature, _COLDEST)
    if top_p < 1.0:
        ordered, order = logits.detach().softmax(-1).sort(-1, descending=True)
        # A token is dropped if the mass before it already reaches top_p; the first always stays.
        drop_ordered = ordered.cumsum(-1) - ordered >= top_p
        drop_ordered[..., 0] = False
        drop = torch.zeros_like(drop_ordered).scatter(-1, order, drop_ordered)
        if kept is not None:
            drop = drop.scatter(-1, kept, False) if ids is None else drop & (ids != kept)
        logits = logits.masked_fill(drop, -torch.inf)
    return Support(logits.log_softmax(-1), ids)
