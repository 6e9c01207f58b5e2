"""Answers to chat requests by frozen weights of this process, decoded together; rows join and leave at every token.

A request's answer depends on nothing but the request: a decoding step has one of the numbers of rows that give the same
bits (``Answerer.sizes``), caches have padded lengths, prompts are forwarded alone, and each request draws from its own
generator. So neither arrival nor neighbours change a bit of its logits.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llm_as_judge.errors import ConfigError, refusing
from llm_as_judge.policy.attention import ATTENTION, DECODE, KeyValue
from llm_as_judge.policy.exactness import apart, plain_logprobs, tolerance
from llm_as_judge.policy.forward import logits_of, next_logits, replayable
from llm_as_judge.policy.local import draw, refuse_unsupported
from llm_as_judge.policy.packed import PackedLinears
from llm_as_judge.policy.prefill import forwarded
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.types import Completion

#: Kernels sum in another order for lengths that are no multiples of this. On a GPU a step is captured for each length.
_LENGTH_STEP, _GPU_LENGTH_STEP = 64, 256
#: Prompts whose keys and values are kept: several samples of one prompt often follow each other.
_KEPT_PROMPTS = 8
#: Decoding steps after which a round ends, so that sampling and updates get the device.
_ROUND_STEPS = 32


@dataclass(eq=False, slots=True)
class Request:
    """One chat request as token ids. ``output`` grows until ``finish_reason`` is set."""

    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    limit_s: float = float("inf")  # of its own decoding, not of waiting
    output: list[int] = field(default_factory=list)
    finish_reason: str = ""
    seconds: float = 0.0
    noise: torch.Generator = field(default_factory=torch.Generator)


@dataclass(frozen=True, slots=True)
class FrozenModel:
    """Weights that answer; ``unadapted`` switches off an adapter inside them, if there is one."""

    base: Any
    tokenizer: Any
    ends: frozenset[int]
    packed: PackedLinears
    unadapted: Callable[[], AbstractContextManager[Any]] = nullcontext

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use evaluation mode without adapter and gradient for the block, then everything as before."""
        base = self.base
        was_training, attention = base.training, base.config._attn_implementation
        base.eval()
        try:
            with self.unadapted(), self.packed.used(), torch.inference_mode():
                yield
        finally:
            base.set_attn_implementation(attention)
            base.train(was_training)


class Answerer:
    """Decodes at most ``rows`` requests together, each of at most ``context`` tokens with its reply.

    ``sizes`` are the numbers of rows that a step may have, of which it takes the smallest that is enough. On a CPU they
    are those that were found to give the same bits as ``rows``; elsewhere, where kernels also choose by length, there
    are always ``rows``. Raises ``ConfigError`` for models whose attention it does not compute.
    """

    def __init__(self, model: FrozenModel, rows: int, context: int) -> None:
        config = model.base.config.get_text_config()
        self.model, self.rows, self.context = model, rows, context
        if context > config.max_position_embeddings:
            raise ConfigError(
                f"context={context}: {config.model_type} reads at most {config.max_position_embeddings} tokens; lower "
                "executor.context or judge.context"
            )
        self.sizes: tuple[int, ...] = (rows,)
        self._cache = Cache(rows)
        self._live: list[Request] = []  # each in the row of its place
        self._filled = lru_cache(_KEPT_PROMPTS)(self._prefill)
        refuse_unsupported(model.base.config, self.context)
        self._check()
        if model.base.device.type == "cpu":
            self.sizes = self._equal_sizes()

    @property
    def busy(self) -> bool:
        return bool(self._live)

    def round(self, take: Callable[[], Request | None], settle: Callable[[Request], None]) -> None:
        """Decode until all requests have ended, or for ``_ROUND_STEPS`` tokens.

        Free rows are filled from ``take``, which returns None if no request waits; ``settle`` gets each that ended.
        """
        with self.model.used():
            for _ in range(_ROUND_STEPS):
                while len(self._live) < self.rows and (request := take()) is not None:
                    self._admit(request)
                    self._settle(settle)
                if not self.busy:
                    return
                self._step()
                self._settle(settle)

    def _admit(self, request: Request) -> Tensor:
        """Forward the prompt and draw the first token; returns its logits [1, V]."""
        begun = time.monotonic()
        if request.seed is None:
            request.noise.seed()
        else:
            request.noise.manual_seed(request.seed)
        found, logits = self._filled(tuple(request.prompt))
        self._cache.fill(len(self._live), found)
        self._live.append(request)
        self._record([request], logits)
        request.seconds += time.monotonic() - begun
        return logits

    def _prefill(self, prompt: tuple[int, ...]) -> tuple[list[KeyValue], Tensor]:
        """Compute keys and values of a prompt, per layer, and the logits [1, V] after it."""
        hidden, found, _ = forwarded(self.model.base, [prompt])
        return found, logits_of(self.model.base, hidden)

    def _step(self) -> Tensor:
        """Decode one token for every live request; returns the logits [size, V], whose first rows are theirs."""
        begun = time.monotonic()
        logits = self._forward(next(size for size in self.sizes if size >= len(self._live)))
        self._cache.lengths[: len(self._live)] += 1
        self._record(self._live, logits)
        for request in self._live:
            request.seconds += time.monotonic() - begun
        return logits

    def _forward(self, size: int) -> Tensor:
        """Forward the last token of the live requests in a step of ``size`` rows; returns the logits [size, V]."""
        base, cache = self.model.base, self._cache
        last = [request.output[-1] for request in self._live[:size]]
        base.set_attn_implementation(DECODE)
        key = cache.begin([*last, *[0] * (size - len(last))])

        def forward() -> Tensor:
            cache.hide()
            return next_logits(base, cache, cache.ids, cache.at[1])

        if key not in cache.steps:
            cache.steps[key] = replayable(forward, base.device)
        return cache.steps[key]()

    def _record(self, requests: Sequence[Request], logits: Tensor) -> None:
        """Add the next token to each of ``requests``, drawn from the first rows of ``logits`` [size, V]."""
        tokens = logits.argmax(-1).tolist()
        alike: dict[Sampling, list[int]] = {}
        for row, one in enumerate(requests):
            if one.temperature > 0:
                alike.setdefault(Sampling(one.temperature, one.top_p), []).append(row)
        for sampling, rows in alike.items():  # one draw for rows of equal sampling: a draw costs as much as a step
            uniform = torch.zeros(len(logits), dtype=torch.float64)
            for row in rows:
                uniform[row] = torch.rand((), dtype=torch.float64, generator=requests[row].noise)
            drawn = draw(logits, sampling, uniform)[0].tolist()
            for row in rows:
                tokens[row] = drawn[row]
        for request, token in zip(requests, tokens, strict=False):
            request.output.append(token)
            if token in self.model.ends:
                request.finish_reason = "stop"
            elif len(request.output) >= request.max_tokens or len(request.prompt) + len(request.output) >= self.context:
                request.finish_reason = "length"
            elif request.seconds > request.limit_s:
                request.finish_reason = "timeout"

    def _settle(self, settle: Callable[[Request], None]) -> None:
        for row in reversed(range(len(self._live))):
            request = self._live[row]
            if request.finish_reason:
                last = self._live.pop()
                if last is not request:
                    self._live[row] = last
                self._cache.move(len(self._live), row)
                settle(request)

    def drop(self) -> None:
        """Give up all live requests, as after an error."""
        self._live, self._cache = [], Cache(self.rows)
        self._filled.cache_clear()

    def _check(self) -> None:
        """Compare log-probs of some tokens with the model's own forward pass. Raises ``ConfigError``."""
        model, base, name = self.model, self.model.base, self.model.base.config.model_type
        prompt = [int(i) for i in model.tokenizer.encode("Write a Python function that adds two numbers.")]
        request = Request(prompt, 4)
        what, cure = f"provider=local cannot answer with {name}", "serve it, and set provider=openai"
        with refusing(ConfigError, what, cure), model.used():
            logits = [self._admit(request)]
            while not request.finish_reason:
                logits.append(self._step()[:1])
            tokens = torch.tensor(request.output, device=base.device)[:, None]
            own = torch.cat(logits).float().log_softmax(-1).gather(-1, tokens)
            base.set_attn_implementation(ATTENTION)
            plain = plain_logprobs(base, Completion("", tuple(prompt), tuple(request.output), (), "stop"))
        self.drop()
        worst = apart(own[:, 0], plain, base.dtype)
        if not worst <= tolerance(base.dtype):  # not >, so that NaN fails
            raise ConfigError(
                f"provider=local would answer with {name} wrongly: its log-probabilities are {worst:.1e} nats off "
                "those of the model's own forward pass; serve the model, and set provider=openai"
            )

    def _equal_sizes(self) -> tuple[int, ...]:
        """List powers of two up to ``rows``, and ``rows``: those whose logits are the same bits as with ``rows``."""
        rows = self.rows
        text = "Write a Python function that adds two numbers. " * 8
        prompt = [int(i) for i in self.model.tokenizer.encode(text)][: self.context - 1]
        with self.model.used():
            for row in range(rows):  # of two lengths, each with a token of its own
                self._admit(Request(prompt[: len(prompt) - row % 2], 2))
                self._live[row].output[0] = prompt[row % len(prompt)]
            full = self._forward(rows)
            smaller = [2**power for power in range(rows.bit_length()) if 2**power < rows]
            equal = [size for size in smaller if torch.equal(self._forward(size), full[:size])]
        self.drop()
        return (*equal, rows)


class Cache:
    """Keys and values of ``rows`` requests; ``lengths`` [rows] are the tokens that each has stored.

    ``ids`` are the tokens that a step forwards, ``at`` their places (row, position), ``steps`` the captured ones.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.lengths = torch.zeros(rows, dtype=torch.long)
        self.ids = torch.zeros(0, dtype=torch.long)
        self.at: tuple[Tensor, Tensor] = (self.ids, self.ids)
        self.steps: dict[tuple[int, int], Callable[[], Tensor]] = {}
        self._layers: list[KeyValue] = []  # each [rows, heads, capacity, D]
        self._mask = torch.zeros(0)
        self._end = 0

    def fill(self, row: int, found: list[KeyValue]) -> None:
        """Store a prompt's keys and values, each [1, heads, T, D] per layer."""
        length = found[0][0].shape[2]
        if not self._layers:
            self._layers = [tuple(x.new_zeros(self.rows, x.shape[1], 0, x.shape[3]) for x in pair) for pair in found]  # type: ignore[misc]
        self._reserve(length + 1)
        for pair, own in zip(self._layers, found, strict=True):
            for whole, part in zip(pair, own, strict=True):
                whole[row, :, :length] = part[0]
        self.lengths[row] = length

    def move(self, source: int, target: int) -> None:
        """Move a row's keys and values to ``target``; its own row is then free."""
        length = int(self.lengths[source])
        for whole in (whole for pair in self._layers for whole in pair):
            whole[target, :, :length] = whole[source, :, :length]
        self.lengths[target] = length
        self.lengths[source] = 0

    def begin(self, ids: list[int]) -> tuple[int, int]:
        """Prepare a step in which each of the first rows adds one of ``ids``; returns number of rows and length."""
        rows, device = len(ids), self._layers[0][0].device
        lengths = self.lengths[:rows]
        longest = int(lengths.max()) + 1
        self._reserve(longest)
        self._end = self._padded(longest)
        if len(self.ids) != rows:
            self.ids = torch.zeros(rows, dtype=torch.long, device=device)
            self.at = (torch.arange(rows, device=device), torch.zeros_like(self.ids))
        self.ids.copy_(torch.tensor(ids))
        self.at[1].copy_(lengths)
        return rows, self._end

    def hide(self) -> None:
        """Mask what lies beyond each row's tokens in the step that was begun."""
        like = self._layers[0][0]
        hidden = torch.arange(self._end, device=like.device) > self.at[1][:, None]
        self._mask = like.new_zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attend from ``query`` [rows, H, 1, D] to the row's own tokens, to which ``key`` and ``value`` are added."""
        keys, values = self._layers[layer]
        keys[self.at[0], :, self.at[1]] = key[:, :, 0]
        values[self.at[0], :, self.at[1]] = value[:, :, 0]
        rows, all_heads, _, dim = query.shape
        grouped = query.reshape(rows, key.shape[1], all_heads // key.shape[1], dim)
        out = F.scaled_dot_product_attention(
            grouped, keys[:rows, :, : self._end], values[:rows, :, : self._end], self._mask, scale=scale
        )
        return out.reshape(rows, 1, all_heads, dim)

    def _reserve(self, length: int) -> None:
        capacity = self._layers[0][0].shape[2]
        if length > capacity:
            pad = (0, 0, 0, self._padded(max(length, 3 * capacity // 2)) - capacity)
            self._layers = [(F.pad(key, pad), F.pad(value, pad)) for key, value in self._layers]
            self.steps.clear()

    def _padded(self, length: int) -> int:
        step = _GPU_LENGTH_STEP if self._layers[0][0].device.type == "cuda" else _LENGTH_STEP
        return -(-length // step) * step
