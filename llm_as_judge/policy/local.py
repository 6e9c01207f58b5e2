"""Sampling workflows with the trainer's own weights: nothing to synchronise, no server (executor: ``answering``).

The common beginning of all prompts is prefilled once, the rest of each prompt once; neither is copied for each member
of a group: a decoding step attends to three caches (common, per prompt, per sequence). Finished sequences leave the
batch. Only the model types of ``policy.shareable`` are supported, and only while they compute plain full attention.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.attention import DECODE
from llm_as_judge.policy.chat import completion_of
from llm_as_judge.policy.forward import logits_of, next_logits, own_precision, replayable
from llm_as_judge.policy.limits import CACHE_TOKENS, MAX_SEQUENCES
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.prefill import prefill
from llm_as_judge.policy.sampling import PLAIN, Sampling, sampling_logprobs
from llm_as_judge.policy.shareable import why_not_attention
from llm_as_judge.policy.tree import padded_batches
from llm_as_judge.types import Completion, OnCompletion

#: Rows are repacked when at most this share of them is still running.
REPACK_BELOW = 0.75


class LocalEngine:
    """Samples with the policy's current weights. Raises ``ConfigError`` for models that it does not support."""

    def __init__(self, policy: Policy, tokenizer: Any) -> None:
        self._policy, self._tokenizer = policy, tokenizer
        self.version = 0
        refuse_unsupported(policy.base.config)

    def sync(self, policy: object, version: int) -> None:
        """Record the version; the weights are the trainer's own."""
        self.version = version

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int = 1, *, sampling: Sampling = PLAIN, max_new_tokens: int = 1024,
        seed: int = 0, on_completion: OnCompletion | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """Sample ``n`` completions of every prompt, in order. Temperature 0 is greedy, with log-probs at temperature 1.

        ``on_completion`` is called with the indices of prompt and completion when a sequence ends. The same seed and
        weights give the same tokens (up to rounding differences between batch shapes).
        """
        if not prompts:
            return []
        if any(len(p) == 0 for p in prompts):
            raise ValueError("a prompt must have at least one token")
        refuse_unsupported(self._policy.base.config, max(map(len, prompts)) + max_new_tokens)
        noise = torch.Generator().manual_seed(seed)
        needed = [len(p) + n * max_new_tokens for p in prompts]
        found: dict[tuple[int, int], Completion] = {}
        ends = self._policy.eos_token_ids
        with self._policy.generation_weights() as base, torch.inference_mode(), own_precision(base):
            for places in padded_batches(needed, CACHE_TOKENS, most=max(1, MAX_SEQUENCES // n)):
                chunk = [list(prompts[place]) for place in places]
                for sequence, ids, logprobs in self._decode(base, chunk, n, sampling, noise, max_new_tokens):
                    place, member = places[0] + sequence // n, sequence % n
                    completion = found[place, member] = completion_of(
                        self._tokenizer, prompts[place], ids, logprobs, ids[-1] in ends, self.version
                    )
                    if on_completion is not None:
                        on_completion(place, member, completion)
        return [[found[place, member] for member in range(n)] for place in range(len(prompts))]

    def _decode(
        self, base: Any, prompts: list[list[int]], n: int, sampling: Sampling, noise: torch.Generator, most: int
    ) -> Iterator[tuple[int, list[int], list[float]]]:
        """Yield index, token ids and log-probs of each of the ``len(prompts) * n`` sequences when it ends."""
        count, length = len(prompts) * n, 0
        ids, logprobs = torch.zeros(count, most, dtype=torch.long), torch.zeros(count, most)
        running = torch.ones(count, dtype=torch.bool)
        rows = torch.arange(count)  # sequence of each row of the grid, -1 = filler
        ends = torch.tensor(sorted(self._policy.eos_token_ids), dtype=torch.long)
        hidden, store = prefill(base, prompts, n)
        logits = logits_of(base, hidden).repeat_interleave(n, 0)  # [P * n, V]
        base.set_attn_implementation(DECODE)
        last = torch.zeros(0, dtype=torch.long)  # tokens [R] that the next step forwards

        def forward() -> Tensor:
            return next_logits(base, store, last, store.next_positions())

        step: Callable[[], Tensor] | None = None
        while True:
            # Noise is drawn for every sequence, running or not: sampling does not depend on the repacking.
            uniform = torch.rand(count, dtype=torch.float64, generator=noise)
            token, logprob = draw(logits, sampling, uniform[rows.clamp(min=0)])
            live = (rows >= 0) & running[rows]
            sequences, sampled = rows[live], token.cpu()[live]
            ids[sequences, length], logprobs[sequences, length] = sampled, logprob.cpu()[live].float()
            length += 1
            stops = torch.isin(sampled, ends) | (length == most)
            running[sequences] = ~stops
            for i in sequences[stops].tolist():
                yield i, ids[i, :length].tolist(), logprobs[i, :length].tolist()
            if not bool(running.any()):
                return
            live = (rows >= 0) & running[rows]
            if (packed := repack(live.view(store.prompts, store.group))) is not None:
                keep, real = packed
                rows = torch.where(real.flatten(), rows[keep.flatten()], -1)
                token = token[keep.flatten().to(token.device)]
                store.select(keep)
                step = None
            if store.reserve() or step is None:
                last = token.clone()
                step = replayable(forward, base.device)
            last.copy_(token)
            logits = step()
            store.advance()


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a token [R] and its log-prob [R] for each row of ``logits`` [R, V]; greedy at temperature 0."""
    if sampling.temperature <= 0:
        token = logits.argmax(-1)
        return token, sampling_logprobs(logits).of(token)
    logprobs, ids = sampling_logprobs(logits, sampling)
    place = sample(logprobs, uniform.to(logits.device))[:, None]
    return (place if ids is None else ids.gather(-1, place))[:, 0], logprobs.gather(-1, place)[:, 0]


def sample(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """Sample one index per row of ``logprobs`` [N, K] by inversion of the cumulative distribution at ``uniform`` [N].

    An index of probability 0 is never drawn: the end of its interval is not above the end of the one before.
    """
    ends = logprobs.exp().double().cumsum(-1)
    total = ends[:, -1]
    target = torch.minimum(uniform.double() * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(ends, target[:, None], right=True)[:, 0]


def repack(live: Tensor) -> tuple[Tensor, Tensor] | None:
    """Build a smaller grid for the live rows of ``live`` [P, G], or None if it would not be much smaller.

    Returns the flat indices [P', G'] of the rows to keep, and a mask of the real ones; the others are copies of a live
    row that fill the grid.
    """
    counts = live.sum(1)
    group = int(counts.max())
    prompts = torch.nonzero(counts)[:, 0]
    if len(prompts) * group > REPACK_BELOW * live.numel():
        return None
    order = live[prompts].int().argsort(dim=1, descending=True, stable=True)[:, :group]  # live columns first
    real = torch.arange(group) < counts[prompts, None]
    return prompts[:, None] * live.shape[1] + torch.where(real, order, order[:, :1]), real


def refuse_unsupported(config: Any, longest: int = 0) -> None:
    """Raise ``ConfigError`` for models whose attention this engine does not support."""
    if reason := why_not_attention(config.get_text_config(), longest):
        raise ConfigError(f"generation.engine=local: {reason}; set generation.engine=vllm")
