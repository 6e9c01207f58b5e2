"""Sampling with the trainer's own weights: no copy to keep in step, no server.

The beginning that all prompts share is prefilled once, the rest of each prompt once, and neither is expanded over a
group: a decoding step attends to three caches (common, per prompt, per sequence). Finished sequences leave the batch.
Only plain full attention is supported: other models are refused, by their configuration and by comparing a few sampled
tokens with the model's own forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from transformers import AttentionInterface

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.chat import completion_of
from llm_as_judge.policy.exactness import apart, explained, plain_logprobs, tolerance
from llm_as_judge.policy.forward import logits_of, own_precision
from llm_as_judge.policy.limits import CACHE_TOKENS, MAX_SEQUENCES
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.prefill import Store, prefill
from llm_as_judge.policy.sampling import sampling_logprobs
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.policy.shareable import why_not_attention
from llm_as_judge.policy.tree import padded_batches
from llm_as_judge.types import Completion

ATTENTION = "llm_as_judge_shared_prefix_decode"
#: Rows are repacked when at most this share of them is still running.
REPACK_BELOW = 0.75

#: Text, because rounding in low precision moves the unlikely tokens that follow random ones far.
_CHECK_PROMPTS = ("Write a Python class", "Write a Python function that adds two numbers.", "Write a Python")
#: Models that passed the check of their first tokens.
_CHECKED: WeakSet[torch.nn.Module] = WeakSet()


class LocalEngine:
    """Samples with the policy's current weights. Raises ``ConfigError`` for models that it does not support."""

    def __init__(self, policy: Policy, tokenizer: Any, *, max_sequences: int = MAX_SEQUENCES) -> None:
        self._policy = policy
        self._tokenizer = tokenizer
        self._max_sequences = max_sequences
        self.version = 0
        refuse(policy.base.config)
        if policy.base not in _CHECKED:
            self._check()
            _CHECKED.add(policy.base)

    def sync(self, policy: object, version: int) -> None:
        """Notes the version; the weights are shared."""
        self.version = version

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int = 1,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_new_tokens: int = 1024,
        seed: int = 0,
        on_completion: Callable[[int, int, Completion], None] | None = None,
    ) -> list[list[Completion]]:
        """``n`` completions of every prompt, in order. Temperature 0 is greedy, with log-probs at temperature 1.

        ``on_completion`` is called with the indices of prompt and completion when a sequence ends. The same seed and
        weights give the same tokens (up to rounding differences between batch shapes).
        """
        if not prompts:
            return []
        if any(len(p) == 0 for p in prompts):
            raise ValueError("a prompt must have at least one token")
        refuse(self._policy.base.config, max(map(len, prompts)) + max_new_tokens)
        sampler = _Sampler(Sampling(temperature, top_p, top_k), torch.Generator().manual_seed(seed))
        needed = [len(p) + n * max_new_tokens for p in prompts]
        found: dict[tuple[int, int], Completion] = {}
        with self._policy.generation_weights() as base, torch.inference_mode(), own_precision(base):
            for places in padded_batches(needed, CACHE_TOKENS, most=max(1, self._max_sequences // n)):
                chunk = [list(prompts[place]) for place in places]
                for ended in self._decode(base, chunk, n, sampler, max_new_tokens):
                    place, member = places[0] + ended.sequence // n, ended.sequence % n
                    completion = found[place, member] = self._completion(prompts[place], ended)
                    if on_completion is not None:
                        on_completion(place, member, completion)
        return [[found[place, member] for member in range(n)] for place in range(len(prompts))]

    def _check(self) -> None:
        """Compares log-probs of a few sampled tokens with the model's own forward pass.

        Some models compute attention without transformers' interface, or with a bias, a cap or sinks that
        ``decode_attention`` does not have. Raises ``ConfigError``.
        """
        base = self._policy.base
        name, most = base.config.model_type, tolerance(base.dtype)
        prompts = [[int(i) for i in self._tokenizer.encode(text)] for text in _CHECK_PROMPTS]
        with explained(f"generation.engine=local cannot decode {name}", "set generation.engine=vllm"):
            groups = self.generate(prompts, 4, max_new_tokens=6)
            with self._policy.generation_weights(), torch.inference_mode():
                sampled = [c for group in groups for c in group]
                own = torch.cat([plain_logprobs(base, c) for c in sampled])
                worst = apart(torch.tensor([p for c in sampled for p in c.logprobs]), own, base.dtype)
        if not worst <= most:  # not >, so that NaN fails
            raise ConfigError(
                f"generation.engine=local would sample {name} wrongly: its log-probabilities are {worst:.1e} "
                f"nats off those of the model's own forward pass (at most {most:g}); set generation.engine=vllm"
            )

    def _decode(
        self, base: Any, prompts: list[list[int]], n: int, sampler: _Sampler, max_new_tokens: int
    ) -> Iterator[_Ended]:
        """Yields each of the ``len(prompts) * n`` sequences when it ends."""
        device, decoder = base.device, base.get_decoder()
        hidden, store = prefill(base, prompts, n)
        logits = logits_of(base, hidden).repeat_interleave(n, 0)  # [P * n, V]
        sequences = _Sequences(len(prompts) * n, max_new_tokens, self._policy.eos_token_ids)
        base.set_attn_implementation(ATTENTION)
        while True:
            token, logprob = sampler.draw(logits, sequences)
            yield from sequences.append(token.cpu(), logprob.cpu())
            live = sequences.live
            if not bool(live.any()):
                return
            if (packed := repack(live.view(store.prompts, store.group))) is not None:
                keep, real = packed
                sequences.select(keep.flatten(), real.flatten())
                token = token[keep.flatten().to(device)]
                store.select(keep)
            positions = store.next_positions()
            hidden = decoder(
                input_ids=token[:, None], position_ids=positions[:, None], use_cache=False, store=store
            ).last_hidden_state[:, 0]
            store.length += 1
            logits = logits_of(base, hidden)

    def _completion(self, prompt: Sequence[int], ended: _Ended) -> Completion:
        stopped = ended.ids[-1] in self._policy.eos_token_ids
        return completion_of(self._tokenizer, prompt, ended.ids, ended.logprobs, stopped, self.version)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A finished sequence."""

    sequence: int
    ids: list[int]
    logprobs: list[float]


class _Sequences:
    """Tokens sampled for N sequences, and which sequence each row of the decoding grid continues."""

    def __init__(self, count: int, max_new_tokens: int, ends: frozenset[int]) -> None:
        self.rows = torch.arange(count)  # sequence of each row, -1 = filler
        self._done = torch.zeros(count, dtype=torch.bool)  # by sequence
        self._ids = torch.zeros(count, max_new_tokens, dtype=torch.long)
        self._logprobs = torch.zeros(count, max_new_tokens)
        self._ends = torch.tensor(sorted(ends), dtype=torch.long)
        self._length = 0

    @property
    def count(self) -> int:
        return len(self._done)

    @property
    def live(self) -> Tensor:
        """Whether each row continues an unfinished sequence."""
        return (self.rows >= 0) & ~self._done[self.rows.clamp(min=0)]

    def append(self, token: Tensor, logprob: Tensor) -> Iterator[_Ended]:
        """Appends a token to each live row; yields the sequences that end with it."""
        live = self.live
        running, token = self.rows[live], token[live]
        self._ids[running, self._length], self._logprobs[running, self._length] = token, logprob[live].float()
        self._length += 1
        stops = torch.isin(token, self._ends) | (self._length == self._ids.shape[1])
        self._done[running] = stops
        for sequence in running[stops].tolist():
            ids, logprobs = self._ids[sequence, : self._length], self._logprobs[sequence, : self._length]
            yield _Ended(sequence, ids.tolist(), logprobs.tolist())

    def select(self, keep: Tensor, real: Tensor) -> None:
        """Keeps the rows with indices ``keep``; those that are not ``real`` become fillers."""
        self.rows = torch.where(real, self.rows[keep], -1)


@dataclass(frozen=True, slots=True)
class _Sampler:
    sampling: Sampling
    noise: torch.Generator

    def draw(self, logits: Tensor, sequences: _Sequences) -> tuple[Tensor, Tensor]:
        """A token and its log-prob for each row of ``logits`` [R, V]."""
        # Noise is drawn for every sequence, running or not: sampling does not depend on the repacking.
        uniform = torch.rand(sequences.count, dtype=torch.float64, generator=self.noise)
        if self.sampling.temperature > 0:
            logprobs = sampling_logprobs(logits, self.sampling.temperature, self.sampling.top_p, self.sampling.top_k)
            token = sample(logprobs, uniform[sequences.rows.clamp(min=0)].to(logits.device))
        else:
            logprobs, token = sampling_logprobs(logits), logits.argmax(-1)
        return token, logprobs.gather(-1, token[:, None])[:, 0]


def decode_attention(
    module: Any,
    query: Tensor,  # [N, H, 1, D]
    key: Tensor,  # [N, heads, 1, D]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    store: Store | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """One decoding step: attention to the common, the prompt's and the sequence's own keys, with one softmax."""
    if store is None:
        raise RuntimeError(f"attention {ATTENTION!r} is only for decoding by LocalEngine")
    layer = store.append(module.layer_idx, key, value)
    rows, all_heads, _, dim = query.shape
    heads, own = key.shape[1], store.length + 1
    grid = (store.prompts, store.group, heads)
    scale = dim**-0.5 if scaling is None else scaling
    # p prompts, g sequences per prompt, h key-value heads, s query heads per key-value head, k keys, d head size
    asked = (query * scale).reshape(*grid, all_heads // heads, dim)
    (common_k, common_v), (prompt_k, prompt_v) = layer.common, layer.prompt
    own_k, own_v = (x[:, :, :own].reshape(*grid, own, dim) for x in layer.own)
    at_common = torch.einsum("pghsd,hkd->phgsk", asked, common_k)
    at_prompt = torch.einsum("pghsd,phkd->phgsk", asked, prompt_k) + store.prompt_mask
    at_own = (asked @ own_k.mT).transpose(1, 2)
    scores = torch.cat([at_common, at_prompt, at_own], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    common, prompt, own_weights = torch.split(weights, [at_common.shape[-1], at_prompt.shape[-1], own], -1)
    out = torch.einsum("phgsk,hkd->pghsd", common, common_v)
    out = out + torch.einsum("phgsk,phkd->pghsd", prompt, prompt_v)
    out = out + torch.einsum("phgsk,pghkd->pghsd", own_weights, own_v)
    return out.reshape(rows, 1, all_heads, dim), None


def sample(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """One id per row of ``logprobs`` [N, V] by inversion of the cumulative distribution at ``uniform`` [N].

    An id of probability 0 is never drawn: the end of its interval is not above the end of the one before.
    """
    ends = logprobs.exp().double().cumsum(-1)
    total = ends[:, -1]
    target = torch.minimum(uniform.double() * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(ends, target[:, None], right=True)[:, 0]


def repack(live: Tensor) -> tuple[Tensor, Tensor] | None:
    """A smaller grid for the live rows of ``live`` [P, G], or None if it would not be much smaller.

    Returns the flat indices [P', G'] of the rows to keep, and which of them are real: the others are copies of a live
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


def refuse(config: Any, longest: int = 0) -> None:
    """Raises ``ConfigError`` for models whose attention this engine would compute wrongly."""
    if reason := why_not_attention(config.get_text_config(), longest):
        raise ConfigError(f"generation.engine=local: {reason}; set generation.engine=vllm")


AttentionInterface.register(ATTENTION, decode_attention)
