"""What a step takes in memory, tokens, seconds and money, on paper: arithmetic alone, no model is loaded.

Sources of the figures:
- Parameters and modules: the shape of Qwen2, Qwen3, Llama and SmolLM2 as transformers builds them.
- Activations: bytes that autograd keeps a token and layer, counted with ``saved_tensors_hooks`` on Qwen2 with an
  adapter on all linear layers (transformers 5.23, PEFT 0.21, torch 2.13) for several widths; ``tests/test_plan.py``
  holds the peak of an update on a CPU against it.
- FLOPs: 2 a weight and token forward and 2 backward through frozen weights (a whole model's backward takes 4), once
  more forward with recomputed activations (Kaplan et al., arXiv 2001.08361, appendix B).
- Decoding is bound by reading the weights once a token (Pope et al., arXiv 2211.05102, section 2).
- Accelerators: their makers' data sheets, dense bfloat16. ``MFU`` and ``BANDWIDTH_SHARE`` are guesses, as is
  ``LOCAL_TOKEN_S``, the local engine's time a token on a GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GB = 1e9
MFU = 0.35
BANDWIDTH_SHARE = 0.6
LOCAL_TOKEN_S = 0.04
#: Of a card's memory, for CUDA itself and what the allocator cannot use.
USABLE = 0.92
#: Elements of logits that exist at once (``logprobs.scoring``), each as logit, log-probability and gradient in float32.
_LOGITS, _LOGIT_BYTES = 2**26, 12
#: Bytes kept a token and layer for each unit of: hidden size, all keys' width, intermediate size, adapter rank.
_KEPT = {"float32": (24.0, 8.0, 16.0, 28.0), "bfloat16": (18.3, 4.5, 8.7, 30.0)}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder as its ``config.json`` tells it."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    def linear(self) -> Iterator[tuple[str, int, int]]:
        """Every linear layer of the decoder: name, inputs, outputs."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for layer in range(self.layers):
            for name, inputs, outputs in (
                ("self_attn.q_proj", self.hidden, q),
                ("self_attn.k_proj", self.hidden, kv),
                ("self_attn.v_proj", self.hidden, kv),
                ("self_attn.o_proj", q, self.hidden),
                ("mlp.gate_proj", self.hidden, self.intermediate),
                ("mlp.up_proj", self.hidden, self.intermediate),
                ("mlp.down_proj", self.intermediate, self.hidden),
            ):
                yield f"model.layers.{layer}.{name}", inputs, outputs

    @property
    def parameters(self) -> int:
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        norms = self.hidden * (2 * self.layers + 1)
        return embeddings + norms + sum(inputs * outputs for _, inputs, outputs in self.linear())

    def adapted(self, modules: str | Sequence[str]) -> list[tuple[str, int, int]]:
        """The linear layers that get an adapter, chosen as PEFT chooses."""

        def chosen(name: str) -> bool:
            if modules == "all-linear":
                return True
            if isinstance(modules, str):
                return re.fullmatch(modules, name) is not None
            return any(name == module or name.endswith(f".{module}") for module in modules)

        return [row for row in self.linear() if chosen(row[0])]

    def cache_bytes(self, tokens: float, bytes_each: int) -> float:
        """Keys and values of ``tokens``."""
        return tokens * 2 * self.layers * self.kv_heads * self.head_dim * bytes_each


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a trainer's update at its peak."""

    weights: float
    adapter: float  # float32: weights, gradient and two moments
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return self.weights + self.adapter + self.activations + self.logits


def update_memory(
    shape: Shape,
    modules: str | Sequence[str],
    rank: int,
    dtype: str,
    tokens: float,
    scored: float,
    *,
    checkpointing: bool,
) -> Memory:
    """``tokens`` are forwarded at once, ``scored`` of them are completions'.

    Layers before the first adapter keep nothing: no gradient reaches them. That one counts as a whole.
    """
    adapted = shape.adapted(modules)
    parameters = rank * sum(inputs + outputs for _, inputs, outputs in adapted)
    reached = shape.layers - int(re.findall(r"layers\.(\d+)\.", adapted[0][0])[0]) if adapted else 0
    h, kv, i, r = _KEPT["float32" if dtype == "float32" else "bfloat16"]
    share = len(adapted) / (7 * reached) if reached else 0.0
    each = h * shape.hidden + kv * shape.kv_heads * shape.head_dim + i * shape.intermediate + r * rank * share
    size = BYTES[dtype]
    kept = tokens * (shape.layers * shape.hidden * size + each) if checkpointing else tokens * reached * each
    logits = min(scored * shape.vocabulary, _LOGITS) * _LOGIT_BYTES
    return Memory(shape.parameters * size, 16.0 * parameters, kept, logits)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one step. ``unique`` counts each prompt's shared parts once, ``padded`` every sequence whole; what completions
    have in common makes it less than ``unique``.
    """

    generated: float
    padded: float
    unique: float
    executor_input: float
    executor_output: float
    requests: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A step's rollouts, and how long the parts of one are, in tokens."""

    problems: int
    group: int
    shared: float  # of every prompt
    prompt: float  # a whole one
    completion: float
    calls: float  # requests to executor and judge for each workflow
    call_input: float
    call_output: float

    @property
    def rollouts(self) -> int:
        return self.problems * self.group

    def tokens(self) -> Tokens:
        generated, requests = self.rollouts * self.completion, self.rollouts * self.calls
        return Tokens(
            generated=generated,
            padded=self.rollouts * self.prompt + generated,
            unique=self.shared + self.problems * (self.prompt - self.shared) + generated,
            executor_input=requests * self.call_input,
            executor_output=requests * self.call_output,
            requests=requests,
        )


@dataclass(frozen=True, slots=True)
class Card:
    """An accelerator: bytes, dense bfloat16 FLOP/s, bytes/s."""

    name: str
    memory: float
    flops: float
    bandwidth: float


CARDS = {
    card.name: card
    for card in (
        Card("A100-40", 40 * GB, 312e12, 1.555e12),
        Card("A100-80", 80 * GB, 312e12, 2.039e12),
        Card("H100-80", 80 * GB, 989e12, 3.35e12),
        Card("H200-141", 141 * GB, 989e12, 4.8e12),
        Card("L40S-48", 48 * GB, 362e12, 0.864e12),
        Card("RTX4090-24", 24 * GB, 165e12, 1.008e12),
    )
}


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one step."""

    generate: float
    update: float
    execute: float  # the calls of a workflow, one after the other
    served: float  # what the executor's places take for all requests

    def step(self, lookahead: int) -> float:
        """Looking ahead d batches, d + 1 are on their way at once, unless policy or executor is busy all the time."""
        device = self.generate + self.update
        if not lookahead:
            return device + max(self.execute, self.served)
        return max(device, self.served, (device + self.execute) / (lookahead + 1))


def generate_seconds(shape: Shape, card: Card, dtype: str, work: Workload, *, local: bool) -> float:
    """All sequences decode together: a pass over the weights for each token, after the prompts' own pass."""
    size = shape.parameters * BYTES[dtype]
    token = LOCAL_TOKEN_S if local else size / (card.bandwidth * BANDWIDTH_SHARE)
    prompts = work.tokens().unique - work.tokens().generated
    return work.completion * token + 2 * shape.parameters * prompts / (card.flops * MFU)


def update_seconds(shape: Shape, card: Card, tokens: float, *, checkpointing: bool, epochs: int, cards: int) -> float:
    passes = 6 if checkpointing else 4
    return epochs * passes * shape.parameters * tokens / (card.flops * MFU * cards)


def execute_seconds(work: Workload, latency: float, slots: int) -> tuple[float, float]:
    """What one workflow's calls take, one after the other, and what the slots take for all requests."""
    return math.ceil(work.calls) * latency, work.tokens().requests / slots * latency


def money(work: Workload, price_input: float, price_output: float) -> float:
    """Of one step's requests; prices are of a million tokens."""
    tokens = work.tokens()
    return (tokens.executor_input * price_input + tokens.executor_output * price_output) / 1e6


def placed(parts: Sequence[tuple[str, float]], cards: int, memory: float) -> dict[str, int] | None:
    """A card for each part (name, bytes), the largest first, or None where they do not fit."""
    left, found = [memory * USABLE] * cards, dict[str, int]()
    for name, size in sorted(parts, key=lambda part: -part[1]):
        card = max(range(cards), key=left.__getitem__)
        if size > left[card]:
            return None
        left[card] -= size
        found[name] = card
    return found
