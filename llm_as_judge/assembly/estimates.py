"""Formulae for the memory, tokens and seconds of a training step; no model is loaded.

- Parameters and modules: Qwen2, Qwen3, Llama and SmolLM2 as transformers builds them.
- Activations: bytes that autograd keeps per token and layer, counted with ``saved_tensors_hooks`` on Qwen2 with
  adapters on all linear layers (transformers 5.23, PEFT 0.21, torch 2.13); the tests compare them with the peak.
- FLOPs per weight and token: 2 forward, 2 backward through frozen weights, and 2 for recomputed activations (Kaplan et
  al., arXiv 2001.08361, appendix B).
- Decoding is bound by reading the weights once per token (Pope et al., arXiv 2211.05102, section 2).
- Accelerators: data sheets, dense bfloat16. ``MFU``, ``BANDWIDTH_SHARE`` and ``LOCAL_TOKEN_S`` are assumptions.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from llm_as_judge.errors import ConfigError, refusing
from llm_as_judge.policy.limits import CACHE_TOKENS, LOGIT_ELEMENTS, MAX_SEQUENCES, PREFILL_TOKENS, SMALL_MODEL

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config, ModelConfig

GB = 1e9
MFU = 0.35
BANDWIDTH_SHARE = 0.6
LOCAL_TOKEN_S = 0.04  # of the local engine on a GPU
_LOGIT_BYTES = 12  # per element: logit, log-probability and gradient in float32
_SAMPLED_BYTES = 30  # per element of the logits to sample from, with sums in float64
#: Bytes kept per token and layer for each unit of: hidden size, width of all keys, intermediate size, adapter rank.
_KEPT = {"float32": (24.0, 8.0, 16.0, 28.0), "bfloat16": (18.3, 4.5, 8.7, 30.0)}
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Card:
    """An accelerator: bytes, dense bfloat16 FLOP/s (float32 without ``bfloat16``), bytes/s."""

    memory: float
    flops: float
    bandwidth: float
    bfloat16: bool = True


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A decoder's sizes, from its ``config.json``."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    def linear(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, inputs and outputs of every linear layer."""
        q, kv, h, i = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.hidden, self.intermediate
        sizes = {
            "self_attn.q_proj": (h, q), "self_attn.k_proj": (h, kv), "self_attn.v_proj": (h, kv),
            "self_attn.o_proj": (q, h), "mlp.gate_proj": (h, i), "mlp.up_proj": (h, i), "mlp.down_proj": (i, h),
        }  # fmt: skip
        for layer in range(self.layers):
            for name, (inputs, outputs) in sizes.items():
                yield f"model.layers.{layer}.{name}", inputs, outputs

    @property
    def parameters(self) -> int:
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        norms = self.hidden * (2 * self.layers + 1)
        return embeddings + norms + sum(inputs * outputs for _, inputs, outputs in self.linear())

    def adapted(self, modules: str | Sequence[str]) -> list[tuple[str, int, int]]:
        """List the linear layers that get an adapter, chosen as in PEFT."""
        if isinstance(modules, str):
            pattern = ".*" if modules == "all-linear" else modules
        else:
            pattern = rf"(.*\.)?({'|'.join(map(re.escape, modules))})"
        return [row for row in self.linear() if re.fullmatch(pattern, row[0])]

    def weight_bytes(self, dtype: str, quantization: str = "none", packed: bool = False) -> float:
        """Size all weights; quantized layers have a scale for 64 weights (nf4, itself quantized) or a row (int8).

        ``packed``: with the second copy of whole layers and head that decoding on a CPU keeps (``policy.packed``).
        """
        linear = sum(inputs * outputs for _, inputs, outputs in self.linear())
        rows = sum(outputs for _, _, outputs in self.linear())
        kept = {"nf4": linear * (0.5 + 1 / 64 + 4 / (64 * 256)), "int8": linear + 4.0 * rows}
        whole, head = 0 if quantization in kept else linear, self.vocabulary * self.hidden
        copy = whole + head if packed and self.parameters > SMALL_MODEL else 0
        return kept.get(quantization, 0.0) + (whole + copy + self.parameters - linear) * BYTES[dtype]

    def cache_bytes(self, tokens: float, dtype: str) -> float:
        """Size keys and values of ``tokens``."""
        return tokens * 2 * self.layers * self.kv_heads * self.head_dim * BYTES[dtype]


@lru_cache
def known() -> tuple[dict[str, Card], dict[str, ModelSizes]]:
    """Read cards and models by name from ``known.yaml``."""
    from llm_as_judge.config.sources import plain_yaml

    cards, models = plain_yaml(Path(__file__).with_name("known.yaml")).values()
    sizes = {name: ModelSizes(*row) for name, row in models.items()}
    return {name: Card(gb * GB, tera * 1e12, tb * 1e12, *more) for name, (gb, tera, tb, *more) in cards.items()}, sizes


def sizes_of(config: "Config", local: str = "") -> ModelSizes:
    """Size the policy or another ``local`` model by its folder's ``config.json`` or the table of known ones."""
    names = (local,) if local else (config.base_model.path, config.base_model.key)
    file = Path(names[0]) / "config.json"
    if file.is_file():
        with refusing(ConfigError, f"{file} has no sizes of a causal language model", "name another model"):
            of = json.loads(file.read_text("utf-8"))
            heads, hidden = of["num_attention_heads"], of["hidden_size"]
            return ModelSizes(
                hidden, of["intermediate_size"], of["num_hidden_layers"], heads, of.get("num_key_value_heads", heads),
                of.get("head_dim") or hidden // heads, of["vocab_size"], bool(of.get("tie_word_embeddings", True)),
            )  # fmt: skip
    for model, sizes in known()[1].items():
        form = model.replace("Qwen2.5", "Qwen2.?5(-Coder)?")
        if any(re.match(form, Path(name).name, re.IGNORECASE) for name in names):
            return sizes
    who = f"local model {local!r}" if local else f"model.model_name={config.model.model_name!r}"
    cure = f"give a folder with its config.json, or one of {', '.join(known()[1])}"
    raise ConfigError(f"{who}: its shape is not known; {cure}")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at the peak of an update."""

    weights: float
    adapter: float  # float32: weights, gradient and two moments
    activations: float
    logits: float


def update_memory(shape: ModelSizes, model: "ModelConfig", dtype: str, tokens: float, scored: float) -> Memory:
    """Estimate the peak memory of an update: ``tokens`` are forwarded at once, ``scored`` of them are completions'.

    Layers before the first adapter keep no activations, because no gradient reaches them.
    """
    adapted, rank = shape.adapted(model.lora_target_modules), model.lora_rank
    parameters = rank * sum(inputs + outputs for _, inputs, outputs in adapted)
    reached = shape.layers - int(re.findall(r"layers\.(\d+)\.", adapted[0][0])[0]) if adapted else 0
    h, kv, i, r = _KEPT[dtype]
    share = len(adapted) / (7 * reached) if reached else 0.0
    each = h * shape.hidden + kv * shape.kv_heads * shape.head_dim + i * shape.intermediate + r * rank * share
    layers = shape.layers * shape.hidden * BYTES[dtype] + each if model.gradient_checkpointing else reached * each
    logits = min(scored * shape.vocabulary, LOGIT_ELEMENTS) * _LOGIT_BYTES
    # Of a quantized base, one layer's weights at a time are whole.
    whole = max(inputs * outputs for _, inputs, outputs in shape.linear()) * BYTES[dtype]
    activations = tokens * layers + (whole if model.quantization != "none" else 0.0)
    return Memory(shape.weight_bytes(dtype, model.quantization), 16.0 * parameters, activations, logits)


def sampling_memory(
    shape: ModelSizes, dtype: str, prompts: int, group: int, shared: float, longest: float, response: int
) -> float:
    """Estimate the bytes that the local engine needs besides weights and adapter, for prompts of up to ``longest``
    tokens, of which ``shared`` begin all, and ``group`` completions of up to ``response`` tokens each.
    """
    needed = longest + group * response
    prompts = int(max(1, min(prompts, MAX_SEQUENCES // group, CACHE_TOKENS // needed)))
    capacity = 64 * 2 ** math.ceil(math.log2(max(1.0, response / 64)))  # doubles
    decoded = shape.cache_bytes(prompts * group * capacity, dtype)
    decoded += prompts * group * shape.vocabulary * _SAMPLED_BYTES
    # Residual, input and normalised input of a layer; gate, and of the other projection weights, adapter and their sum.
    forwarded = min(PREFILL_TOKENS, prompts * (longest - shared))
    prefilled = forwarded * (3 * shape.hidden + 5 * shape.intermediate) * BYTES[dtype]
    prefilled += shape.cache_bytes(forwarded, dtype)
    return shape.cache_bytes(shared + prompts * (longest - shared), dtype) + max(prefilled, decoded)


#: Kinds of tokens of a step, with their titles.
TOKENS = {
    "generated": "written by the policy",
    "padded": "forwarded in padded rows",
    "unique": "forwarded with shared prefixes",
    "executor_input": "read by executor and judge",
    "executor_output": "written by executor and judge",
    "requests": "requests to them",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """The rollouts of a step; lengths are in tokens."""

    problems: int
    group: int
    shared: float  # part of every prompt
    prompt: float  # whole
    completion: float
    calls: float  # requests to executor and judge per workflow
    call_input: float
    call_output: float
    longest: float = 0.0  # prompt of the held-out evaluation
    dearer: float = 1.0  # cost of the executors' tokens relative to the default's prices

    @property
    def rollouts(self) -> int:
        return self.problems * self.group

    @property
    def tokens(self) -> dict[str, float]:
        """By the names in ``TOKENS``. ``unique`` ignores prefixes that completions share."""
        generated = self.rollouts * self.completion
        return {
            "generated": generated,
            "padded": self.rollouts * self.prompt + generated,
            "unique": self.shared + self.problems * (self.prompt - self.shared) + generated,
            **self.asked(self.rollouts * self.calls),
        }

    def asked(self, requests: float) -> dict[str, float]:
        """Estimate the tokens of ``requests`` to executor and judge."""
        asked = {"executor_input": self.call_input, "executor_output": self.call_output, "requests": 1.0}
        return {name: requests * each for name, each in asked.items()}


def step_seconds(generate: float, update: float, execute: float, served: float, lookahead: int) -> float:
    """Estimate the seconds of a step.

    ``execute``: the calls of one workflow, one after the other; ``served``: all requests, limited by the executor's
    concurrency. With d batches of lookahead, d + 1 are processed at once, unless policy or executor is always busy.
    """
    device = generate + update
    if not lookahead:
        return device + max(execute, served)
    return max(device, served, (device + execute) / (lookahead + 1))
