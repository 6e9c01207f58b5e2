"""Generation with the trainer's own weights: no copy to keep in step, no server.

The prompts' common beginning is prefilled once, each prompt's rest once, and neither is ever expanded over a
group: the decoding step attends to three stores (common, per prompt, per sequence). Finished sequences leave
the batch. Plain full attention only: windows that cut, convolutions and recurrences are refused, and so is every
model of which a few tokens do not come out as its own forward pass has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor
from transformers import AttentionInterface

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.head import Head
from llm_as_judge.policy.plain import apart, plain_logprobs, tolerance
from llm_as_judge.policy.precision import own_precision
from llm_as_judge.policy.prefill import Store, prefill
from llm_as_judge.policy.sampling import sampling_logprobs
from llm_as_judge.policy.shareable import why_not_attention
from llm_as_judge.policy.text import text_of
from llm_as_judge.types import Completion

ATTENTION = "llm_as_judge_shared_prefix_decode"
#: Rows are repacked when that share of them or less is still running.
REPACK_BELOW = 0.75
#: Ids whose probabilities are summed at once where one of them is drawn.
_BLOCK = 256

#: ``(sequence, token ids, log-probs)``
Ended = Callable[[int, list[int], list[float]], None]

#: Models whose first tokens were right.
_CHECKED: WeakSet[torch.nn.Module] = WeakSet()


class LocalPolicy(Protocol):
    """What the engine needs of ``rl.policy.Policy``."""

    @property
    def base(self) -> Any: ...  # the Hugging Face causal LM, adapter layers inside

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def generation_weights(self) -> AbstractContextManager[Any]: ...  # eval mode; restores what it changes


class LocalEngine:
    """``generate`` samples with the policy's current weights; ``sync`` only notes their version."""

    def __init__(self, policy: LocalPolicy, tokenizer: Any, *, max_sequences: int = 256) -> None:
        self._policy = policy
        self._tokenizer = tokenizer
        self._max_sequences = max_sequences
        self.version = 0
        refuse(policy.base.config)
        if policy.base not in _CHECKED:
            self._check()
            _CHECKED.add(policy.base)

    def sync(self, policy: object, version: int) -> None:
        """The weights are shared, so there is nothing to send."""
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
        """``n`` completions of every prompt, in order. ``temperature`` 0 is greedy, its log-probs those at
        temperature 1. ``on_completion`` is called with the places of prompt and completion when a sequence ends.

        The same ``seed`` and weights give the same tokens (up to rounding differences between batch shapes).
        """
        if not prompts:
            return []
        if any(len(p) == 0 for p in prompts):
            raise ValueError("a prompt must have at least one token")
        refuse(self._policy.base.config, max(map(len, prompts)) + max_new_tokens)
        noise = torch.Generator().manual_seed(seed)
        at_once = max(1, self._max_sequences // n)
        found: dict[tuple[int, int], Completion] = {}

        def ended(start: int, sequence: int, ids: list[int], logprobs: list[float]) -> None:
            place, member = start + sequence // n, sequence % n
            completion = found[place, member] = self._completion(prompts[place], ids, logprobs)
            if on_completion is not None:
                on_completion(place, member, completion)

        with self._policy.generation_weights() as base, torch.inference_mode(), own_precision(base):
            attention = base.config._attn_implementation
            for start in range(0, len(prompts), at_once):
                chunk = [list(p) for p in prompts[start : start + at_once]]
                base.set_attn_implementation(attention)  # the prefill uses the model's own
                self._decode(base, chunk, n, temperature, top_p, top_k, max_new_tokens, noise, partial(ended, start))
        return [[found[place, member] for member in range(n)] for place in range(len(prompts))]

    def _check(self) -> None:
        """Raises ``ConfigError`` unless log-probs of a few tokens are those of the model's own forward pass.

        Some models compute their attention without transformers' interface to it, or with a bias, a cap or sinks that
        ``decode_attention`` knows nothing of.
        """
        base = self._policy.base
        name, most = base.config.model_type, tolerance(base.dtype)
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(base.config.get_text_config().vocab_size, (30,), generator=draw).tolist()
        prompts = [tokens[:14], tokens[:8] + tokens[14:20], tokens[:8] + tokens[20:]]
        try:
            groups = self.generate(prompts, 2, max_new_tokens=6)
            with self._policy.generation_weights(), torch.inference_mode():
                sampled = [c for group in groups for c in group]
                own = torch.cat([plain_logprobs(base, c) for c in sampled])
                worst = apart(torch.tensor([p for c in sampled for p in c.logprobs]), own, base.dtype)
        except (ConfigError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ConfigError(
                f"generation.engine=local cannot decode {name} ({type(error).__name__}: {error}); set "
                "generation.engine=vllm"
            ) from error
        if not worst <= most:  # not >, so that NaN fails
            raise ConfigError(
                f"generation.engine=local would sample {name} wrongly: its log-probabilities are {worst:.1e} "
                f"nats off those of the model's own forward pass (at most {most:g}); set generation.engine=vllm"
            )

    def _decode(
        self,
        base: Any,
        prompts: list[list[int]],
        n: int,
        temperature: float,
        top_p: float,
        top_k: int,
        max_new_tokens: int,
        noise: torch.Generator,
        ended: Ended,
    ) -> None:
        """Calls ``ended`` with each of the ``len(prompts) * n`` sequences when it ends."""
        device = base.device
        decoder, head = base.get_decoder(), Head(base)
        hidden, store = prefill(base, prompts, n)
        logits = head(hidden).repeat_interleave(n, 0)  # [P * n, V]
        total = len(prompts) * n
        rows = torch.arange(total)  # which sequence a row decodes, -1 = filler
        done = torch.zeros(total, dtype=torch.bool)  # by sequence
        tokens = torch.zeros(total, max_new_tokens, dtype=torch.long)
        scores = torch.zeros(total, max_new_tokens)
        eos = torch.tensor(sorted(self._policy.eos_token_ids), dtype=torch.long)
        base.set_attn_implementation(ATTENTION)
        for step in range(max_new_tokens):
            # Noise is drawn for every sequence, running or not: sampling does not depend on the repacking.
            uniform = torch.rand(total, dtype=torch.float64, generator=noise)
            if temperature > 0:
                logprobs = sampling_logprobs(logits, temperature, top_p, top_k)
                token = sample(logprobs, uniform[rows.clamp(min=0)].to(device))
            else:
                logprobs = sampling_logprobs(logits)
                token = logits.argmax(-1)
            score = logprobs.gather(-1, token[:, None])[:, 0].float().cpu()
            chosen = token.cpu()
            live = (rows >= 0) & ~done[rows.clamp(min=0)]
            sequences = rows[live]
            tokens[sequences, step], scores[sequences, step] = chosen[live], score[live]
            stops = torch.isin(chosen[live], eos)
            done[sequences] = stops
            last = step + 1 == max_new_tokens
            for sequence in (sequences if last else sequences[stops]).tolist():
                ended(sequence, tokens[sequence, : step + 1].tolist(), scores[sequence, : step + 1].tolist())
            if last or bool(done.all()):
                break
            live = (rows >= 0) & ~done[rows.clamp(min=0)]
            if (keep := repack(live.view(store.prompts, store.group))) is not None:
                flat = keep.flatten()
                rows = torch.where(live[flat] & _first_use(flat), rows[flat], -1)
                token = token[flat.to(device)]
                store.select(keep)
            positions = store.next_positions()
            hidden = decoder(
                input_ids=token[:, None], position_ids=positions[:, None], use_cache=False, store=store
            ).last_hidden_state[:, 0]
            store.length += 1
            logits = head(hidden)

    def _completion(self, prompt: Sequence[int], ids: list[int], logprobs: list[float]) -> Completion:
        stopped = ids[-1] in self._policy.eos_token_ids
        return Completion(
            text=text_of(self._tokenizer, ids[:-1] if stopped else ids),
            prompt_ids=tuple(prompt),
            token_ids=tuple(ids),
            logprobs=tuple(logprobs),
            finish_reason="stop" if stopped else "length",
            policy_version=self.version,
        )


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
    """One decoding step against the common, the prompt's and the sequence's own keys, one softmax over all
    three.
    """
    if store is None:
        raise RuntimeError(f"attention {ATTENTION!r} is for LocalEngine's decoding only")
    layer = store.append(module.layer_idx, key, value)
    rows, all_heads, _, dim = query.shape
    heads = key.shape[1]
    share = all_heads // heads
    prompts, group, own = store.prompts, store.group, store.length + 1
    scale = dim**-0.5 if scaling is None else scaling
    grid = (query * scale).reshape(prompts, group, heads, share, dim)
    by_head = grid.permute(2, 0, 1, 3, 4).reshape(heads, rows * share, dim)
    by_prompt = grid.transpose(1, 2).reshape(prompts, heads, group * share, dim)
    by_row = grid.reshape(rows, heads, share, dim)
    (common_k, common_v), (prompt_k, prompt_v) = layer.common, layer.prompt
    own_k, own_v = layer.own[0][:, :, :own], layer.own[1][:, :, :own]
    cut = [common_k.shape[1], prompt_k.shape[2], own]
    # [prompts, heads, group, share, keys] is the layout in which the three parts meet.
    at_common = (by_head @ common_k.transpose(-1, -2)).view(heads, prompts, group, share, cut[0]).transpose(0, 1)
    at_prompt = (by_prompt @ prompt_k.transpose(-1, -2)).view(prompts, heads, group, share, cut[1])
    at_own = (by_row @ own_k.transpose(-1, -2)).view(prompts, group, heads, share, own).transpose(1, 2)
    scores = torch.cat([at_common, at_prompt + store.prompt_mask, at_own], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    w_common, w_prompt, w_own = torch.split(weights, cut, -1)
    out = (
        (w_common.transpose(0, 1).reshape(heads, rows * share, cut[0]) @ common_v)
        .view(heads, prompts, group, share, dim)
        .permute(1, 2, 0, 3, 4)
    )
    out = out + (w_prompt.reshape(prompts, heads, group * share, cut[1]) @ prompt_v).view(
        prompts, heads, group, share, dim
    ).transpose(1, 2)
    out = out + (w_own.transpose(1, 2).reshape(rows, heads, share, own) @ own_v).view(prompts, group, heads, share, dim)
    return out.reshape(rows, 1, all_heads, dim), None


def sample(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """One id a row by inversion of the cumulative distribution; an id of probability 0 is never drawn.

    First a block of ids by the blocks' masses, then an id inside it: no sum runs over the whole vocabulary in float64.
    """
    rows = torch.arange(len(logprobs), device=logprobs.device)
    padding = -logprobs.shape[-1] % _BLOCK
    blocks = torch.nn.functional.pad(logprobs.exp(), (0, padding)).view(len(rows), -1, _BLOCK)
    block, place = _invert(blocks.sum(-1).double(), uniform.double())
    inside, _ = _invert(blocks[rows, block].double(), place)
    return block * _BLOCK + inside


def _invert(mass: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The column of ``mass`` [N, K] in which the share ``place`` [N] of each row's sum falls, and the share of that
    column that lies before it.
    """
    ends = mass.cumsum(-1)
    total = ends[:, -1]
    target = torch.minimum(place * total, torch.nextafter(total, torch.zeros_like(total)))[:, None]
    column = torch.searchsorted(ends, target, right=True).clamp(max=mass.shape[1] - 1)
    chosen = mass.gather(-1, column)
    return column[:, 0], ((target - ends.gather(-1, column) + chosen) / chosen)[:, 0].clamp(0, 1)


def repack(live: Tensor) -> Tensor | None:
    """Flat indices [P', G'] of a smaller grid holding every live row of ``live`` [P, G], or None where it is
    not worth it.
    """
    counts = live.sum(1)
    group = int(counts.max())
    prompts = torch.nonzero(counts)[:, 0].tolist()
    if len(prompts) * group > REPACK_BELOW * live.numel():
        return None
    keep = torch.empty(len(prompts), group, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        columns = torch.nonzero(live[prompt])[:, 0]
        filler = columns[:1].expand(group - len(columns))  # a copy of a live row: its samples are dropped
        keep[row] = prompt * live.shape[1] + torch.cat([columns, filler])
    return keep


def refuse(config: Any, longest: int = 0) -> None:
    """Raises ``ConfigError`` for models whose attention this decoding would get wrong."""
    if reason := why_not_attention(config.get_text_config(), longest):
        raise ConfigError(f"generation.engine=local: {reason}; set generation.engine=vllm")


def _first_use(flat: Tensor) -> Tensor:
    """True at the first occurrence of every value of ``flat`` [N]."""
    order = flat.sort(stable=True)
    first = torch.ones_like(flat, dtype=torch.bool)
    first[order.indices[1:]] = order.values[1:] != order.values[:-1]
    return first


AttentionInterface.register(ATTENTION, decode_attention)
