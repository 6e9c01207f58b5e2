"""A base in 4 or 8 bits: one base for sampling, update and reference; adapters that say what they were trained on."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.finished import EMBEDDED
from helpers.tiny import VOCABULARY, NumberTokenizer, alike, bandit_trainer, logprobs_of, random_completions
from peft.utils import load_peft_weights
from transformers import AutoModelForCausalLM, Qwen2Config

from llm_as_judge.commands.export import run_export
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import model, quantized, weights
from llm_as_judge.policy.exactness import plain_logprobs
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.vllm_server import command

pytest.importorskip("bitsandbytes", reason="bitsandbytes is an extra: pip install 'llm-as-judge[quantized]'")
KINDS = pytest.mark.parametrize("kind", ["nf4", "int8"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2, which has biases, as layers in 4 bits treat them in their own way."""
    shape = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.2, eos_token_id=1,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(shape).save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "load_tokenizer", lambda name: NumberTokenizer())


def loaded(path: Path, kind: str, adapter: Path | None = None, **more: Any) -> Policy:
    settings = {"lora_rank": 4, "lora_alpha": 8, "device": "cpu", "dtype": "float32", "quantization": kind, **more}
    policy = Policy.load(str(path), ModelConfig(model_name=str(path), **settings), adapter=adapter)
    draw = torch.Generator().manual_seed(5)
    for parameter in policy.trainable_parameters if adapter is None else ():
        parameter.data.normal_(0, 0.05, generator=draw)
    return policy


@KINDS
def test_shared_prefixes_padded_rows_and_sampling_agree_on_the_same_base(folder: Path, kind: str) -> None:
    policy, whole, completions = loaded(folder, kind), loaded(folder, "none"), random_completions()
    counts = [len(completion.token_ids) for completion in completions]

    def scored(of: Policy, shared: bool) -> tuple[torch.Tensor, torch.Tensor]:
        scores = logprobs_of(of, completions, shared_prefix=shared).logprobs
        found = torch.cat([row[:count] for row, count in zip(scores, counts, strict=True)])
        found.sum().backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([p.grad.flatten() for p in of.trainable_parameters if p.grad is not None])
        of.model.zero_grad()
        return found.detach(), gradient

    shared, padded, full = scored(policy, True), scored(policy, False), scored(whole, False)
    assert torch.allclose(shared[0], padded[0], atol=1e-4) and torch.allclose(
        shared[1], padded[1], rtol=1e-3, atol=1e-3
    )
    with policy.generation_weights() as base, torch.no_grad():
        sampling = torch.cat([plain_logprobs(base, completion) for completion in completions])
    assert torch.allclose(sampling, padded[0], atol=1e-4), "evaluation mode has no kernels of its own"
    assert (padded[0] - full[0]).abs().max() > 0.01, "not quantized: no test could fail"
    linear = policy.base.model.layers[0].mlp.up_proj.get_base_layer().weight
    assert linear.element_size() == 1 and linear.numel() == 128 * 256 // (2 if kind == "nf4" else 1)


@KINDS
async def test_a_resumed_run_has_the_same_bytes(folder: Path, tmp_path: Path, kind: str) -> None:
    made = [bandit_trainer(tmp_path / name, policy=loaded(folder, kind), save_every=1) for name in ("clean", "resumed")]
    await made[0].train(2)
    made[1].resume(tmp_path / "clean" / "step_1")
    await made[1].train(1)
    assert alike(*made)


def test_an_adapter_says_what_it_was_trained_on(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded(folder, "nf4").save_adapter(tmp_path / "nf4")
    loaded(folder, "none").save_adapter(tmp_path / "none")
    assert load_peft_weights(str(tmp_path / "nf4")).keys() == load_peft_weights(str(tmp_path / "none")).keys()
    with caplog.at_level(logging.WARNING):
        loaded(folder, "nf4", tmp_path / "nf4")
        loaded(folder, "none", tmp_path / "none")
        assert not caplog.records
        loaded(folder, "none", tmp_path / "nf4")
        loaded(folder, "int8", tmp_path / "none")
    first, second = (record.getMessage() for record in caplog.records)
    assert "model.quantization=nf4, not none" in first and "model.quantization=none, not int8" in second


def test_a_merge_is_into_the_weights_as_they_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the nano policy has a tokenizer
    config = load_config(EMBEDDED, ["model.quantization=nf4"])
    policy = Policy.load(config.base_model.path, config.model)
    for parameter in policy.trainable_parameters:
        parameter.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(1))
    policy.save_adapter(here / "step_1")
    result = run_export(config, here / "merged", here / "step_1", merge=True)
    assert "nats a token on average" in result.note and result.note in (here / "merged/README.md").read_text("utf-8")
    whole = Policy.load(
        config.base_model.path, config.model.model_copy(update={"quantization": "none"}), adapter=here / "step_1"
    )
    merged = AutoModelForCausalLM.from_pretrained(here / "merged", dtype="auto")
    ids = torch.tensor([[1, 50, 2, 300, 7]])
    with torch.no_grad():
        off = [(merged(ids).logits - one.model.eval()(ids).logits).abs().max() for one in (whole, policy)]
    assert off[0] < 1e-3 < off[1]


def test_what_cannot_be_quantized_is_refused_before_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"model\.device=mps"):
        quantized.loading_options("nf4", "mps", "bfloat16")
    words = command(load_config(None, ["model.quantization=nf4"]), "weights", "name", "bfloat16")
    assert words[words.index("--quantization") + 1] == words[words.index("--load-format") + 1] == "bitsandbytes"
    with pytest.raises(ConfigError, match="vLLM quantizes to nf4 only"):
        command(load_config(None, ["model.quantization=int8"]), "weights", "name", "bfloat16")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setattr(model, "load_model", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(ConfigError, match=r"llm-as-judge\[quantized\]"):
        Policy.load("nowhere", ModelConfig(quantization="nf4", device="cpu"))
