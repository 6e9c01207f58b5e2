"""Updates and an evaluation of 7B models under fake tensors: shapes, dtypes and memory as on a GPU, no weights.

A fake tensor has no values, so the test also fails if a forward or backward pass waits for one (``item``, ``nonzero``,
a boolean index), which on a GPU would be a synchronisation in every layer or row.
"""

import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from llm_as_judge.assembly.estimates import ModelSizes, sampling_memory, update_memory
from llm_as_judge.config.schema import ModelConfig, TrainingConfig
from llm_as_judge.policy import attention, local, prefill, scoring
from llm_as_judge.policy.forward import logits_of, own_precision
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.tree import padded_batches, plan
from llm_as_judge.rl.update import Updater
from llm_as_judge.types import Completion

pytestmark = pytest.mark.slow

BUDGET = 16_384
QWEN25 = ModelSizes(3584, 18944, 28, 28, 4, 128, 152_064, False)
QWEN3 = ModelSizes(4096, 12288, 36, 32, 8, 128, 151_936, False)
SETTINGS = ModelConfig(dtype="bfloat16", gradient_checkpointing=True, lora_rank=64, lora_alpha=64, device="cpu")
#: Groups, completions of each, tokens that begin all prompts, own tokens of a prompt, least and most of a completion.
LONG = (3, 4, 2200, 1500, 400, 1000)
#: The largest of the configuration for one 24 GB card in docs/training.md; as little as possible is shared.
DOCUMENTED = (4, 6, 300, 1500, 512, 512)
#: Products of at least this many elements must be in bfloat16; the loss computes small ones in float32.
LARGE = 2**20


class Watch(TorchDispatchMode):
    """Bytes of all storages alive, their peak, and the dtypes of large matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self.products: set[torch.dtype] = set()
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor)
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm) and out.numel() > LARGE:
            self.products.update(arg.dtype for arg in args if isinstance(arg, torch.Tensor))
        return out

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known[key] = size
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.bytes -= self._known.pop(key)


def converted(module: nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    """``nn.Module._apply`` for fake tensors, which cannot be swapped in place."""
    for child in module.children():
        child._apply(convert)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = nn.Parameter(convert(parameter.detach()), parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = convert(buffer)
    return module


def sampled(groups: int, members: int, shared: int, own: int, least: int, most: int) -> list[Completion]:
    """Prompts of ``shared`` tokens that begin all and ``own``; completions of ``least`` to ``most`` tokens."""
    draw = Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(1000) for _ in range(count))

    system, found = tokens(shared), []
    for _ in range(groups):
        prompt = system + tokens(own)
        for _ in range(members):
            ids = tokens(draw.randint(least, most))
            found.append(Completion("", prompt, ids, (0.0,) * len(ids), "stop", 0))
    return found


def architecture(make: Any, shape: ModelSizes) -> Any:
    return make(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        vocab_size=shape.vocabulary, tie_word_embeddings=False,
    )  # fmt: skip


def in_four_bits(base: Any) -> Any:
    """Every linear layer of the decoder as bitsandbytes loads it."""
    bnb = pytest.importorskip("bitsandbytes", reason="an extra: pip install 'llm-as-judge[quantized]'")
    byte, state = torch.uint8, bnb.functional.QuantState
    for layer in base.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name, linear in list(parent.named_children()):
                if type(linear) is nn.Linear:
                    count, bias = linear.weight.numel(), linear.bias is not None
                    scales = state(torch.empty(count // 64 // 256), None, torch.empty(256), 256, dtype=torch.float32)
                    kept = state(
                        torch.empty(count // 64, dtype=byte), linear.weight.shape, torch.empty(16), 64, "nf4",
                        torch.bfloat16, torch.zeros(()), scales,
                    )  # fmt: skip
                    with unset_fake_temporarily():
                        own = bnb.nn.Linear4bit(1, 1, bias, torch.bfloat16, quant_type="nf4")
                    own.in_features, own.out_features = linear.in_features, linear.out_features
                    # Not Params4bit: there are no fake tensors of other classes.
                    own.weight = nn.Parameter(torch.empty(count // 2, 1, dtype=byte), requires_grad=False)
                    own.weight.quant_state, own.weight.quant_type, own.weight.compress_statistics = kept, "nf4", True
                    own.bias, own.quant_state = linear.bias, kept
                    setattr(parent, name, own)
    base.is_loaded_in_4bit = True
    return base


@pytest.mark.parametrize(
    ("kind", "count", "group", "shared", "least", "most", "response"),
    [("none", 64, 1, 2200, 1500, 2700, 1024), ("nf4", 64, 1, 300, 900, 1500, 512), ("nf4", 4, 6, 300, 1500, 1500, 512)],
)
def test_sampling_and_an_evaluation_of_long_prompts_need_the_planned_memory(
    kind: str,
    count: int,
    group: int,
    shared: int,
    least: int,
    most: int,
    response: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The prefill of each batch, and its decoding step with the longest cache; with nf4 as documented for 24 GB."""
    monkeypatch.setattr(nn.Module, "_apply", converted)
    monkeypatch.setattr(prefill, "kernel_for", lambda device: "dense")
    draw = Random(0)
    system = [draw.randrange(1000) for _ in range(shared)]
    prompts = [system + [draw.randrange(1000) for _ in range(draw.randint(least, most))] for _ in range(count)]
    needed = [len(prompt) + group * response for prompt in prompts]
    with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch, torch.no_grad():
        base = AutoModelForCausalLM.from_config(architecture(Qwen2Config, QWEN25), dtype=torch.bfloat16)
        policy = Policy(in_four_bits(base) if kind == "nf4" else base, None, SETTINGS)
        weights = watch.bytes
        watch.peak = weights
        for places in padded_batches(needed, local.CACHE_TOKENS):
            with policy.generation_weights(), own_precision(base):
                chunk = [prompts[place] for place in places]
                hidden, store = prefill.prefill(base, chunk, group, capacity=response)
                base.set_attn_implementation(attention.DECODE)
                store.length = response - 1
                store.at.fill_(response - 1)
                ids = torch.zeros(len(chunk) * group, 1, dtype=torch.long)
                states = base.get_decoder()(
                    input_ids=ids, position_ids=store.next_positions()[:, None], use_cache=False, store=store
                )
                logits, chances = logits_of(base, states.last_hidden_state[:, 0]), torch.rand(len(ids)).double()
                local.draw(logits, Sampling(0.3, 0.95), chances)
                del hidden, store, states, logits
    assert watch.products == {torch.bfloat16}
    planned = sampling_memory(QWEN25, "bfloat16", count, group, shared, max(map(len, prompts)), response)
    assert planned == pytest.approx(watch.peak - weights, rel=0.1), (planned / 1e9, (watch.peak - weights) / 1e9)


@pytest.mark.parametrize(
    ("make", "shape", "kind", "sizes"),
    [(Qwen2Config, QWEN25, "none", LONG), (Qwen3Config, QWEN3, "none", LONG), (Qwen2Config, QWEN25, "nf4", DOCUMENTED)],
)
def test_an_update_is_in_bfloat16_and_needs_the_planned_memory(
    make: Any, shape: ModelSizes, kind: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.Module, "_apply", converted)
    monkeypatch.setattr(scoring, "CPU_ROW_TOKENS", BUDGET)  # as on a GPU
    completions = sampled(*sizes)
    together = completions[: 3 * sizes[1]]  # groups that are forwarded at once
    tree = plan([c.prompt_ids for c in together], [c.token_ids for c in together])
    scored = tree.edge.numel()
    assert tree.unique_tokens < BUDGET
    with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch:
        base = AutoModelForCausalLM.from_config(architecture(make, shape), dtype=torch.bfloat16)
        policy = Policy(in_four_bits(base) if kind == "nf4" else base, None, SETTINGS)
        del base
        updater = Updater(policy, TrainingConfig(beta=0.0))
        for batch in (completions[:1], completions):  # AdamW's moments exist from the second update on
            watch.peak = watch.bytes
            for _, scores in policy.micro_batches(batch, Sampling(), "tree", BUDGET):
                (scores.logprobs * scores.mask).sum().backward()  # type: ignore[no-untyped-call]
            updater.optimizer.step()
            updater.optimizer.zero_grad()
    assert watch.products == {torch.bfloat16}
    planned_for = SETTINGS.model_copy(update={"quantization": kind})
    estimate = update_memory(shape, planned_for, "bfloat16", tree.unique_tokens, scored)
    planned = estimate.weights + estimate.adapter + estimate.activations + estimate.logits
    assert planned == pytest.approx(watch.peak, rel=0.1), (planned / 1e9, watch.peak / 1e9)
