"""Claims about scoring, the adapter and the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny import VOCABULARY, NumberTokenizer, random_completions, tiny_policy
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import scoring
from llm_as_judge.policy.model import Policy, fit_threads, resolve_dtype
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.types import Completion, Prompt


def one_by_one(policy: Policy, completion: Completion, temperature: float = 1.0) -> torch.Tensor:
    """The plain public forward of a single sequence."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
    logits = policy.model(input_ids=ids).logits[0, len(completion.prompt_ids) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]


@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_logprobs_equal_one_sequence_at_a_time(shared_prefix: bool, temperature: float) -> None:
    policy = tiny_policy(perturb=0.1)
    completions = random_completions()
    scores = policy.logprobs(completions, Sampling(temperature), shared_prefix=shared_prefix)
    for row, completion in enumerate(completions):
        expected = one_by_one(policy, completion, temperature)
        length = len(completion.token_ids)
        assert torch.allclose(scores.logprobs[row, :length], expected, atol=1e-5)
        assert scores.mask[row].sum() == length
        assert not scores.logprobs[row, length:].any() and not scores.entropy[row, length:].any()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 0.9, 8)])
def test_shared_prefix_gradients_equal_the_padded_ones(sampling: Sampling) -> None:
    completions = random_completions(prompts=3, group=4)
    completions.append(completions[0])  # an identical sequence
    longer = Completion("", completions[1].prompt_ids, (*completions[1].token_ids, 5, 6), (), "stop")
    completions.append(longer)  # one that another is a prefix of
    gradients = []
    for shared_prefix in (False, True):
        policy = tiny_policy(perturb=0.1)
        scores = policy.logprobs(completions, sampling, shared_prefix=shared_prefix)
        weights = torch.sin(torch.arange(scores.logprobs.numel())).view_as(scores.logprobs)
        (scores.logprobs * weights * scores.mask).sum().backward()
        gradients.append([p.grad for p in policy.trainable_parameters()])
    for padded, shared in zip(*gradients, strict=True):
        assert padded is not None and shared is not None
        assert float((padded - shared).norm()) <= 1e-4 * float(padded.norm())


def test_first_token_and_end_token_get_gradient_and_the_prompt_none() -> None:
    policy = tiny_policy(perturb=0.1)
    completion = Completion("", (5, 6), (7, 8, 1), (), "stop")
    head = policy.base.get_output_embeddings()
    seen: list[torch.Tensor] = []
    handle = head.register_forward_hook(lambda m, i, o: seen.append(o) or o.retain_grad())
    policy.logprobs([completion]).logprobs.sum().backward()
    handle.remove()
    assert seen[0].shape == (1, 3, VOCABULARY)  # three predictions, no logits for the prompt
    assert seen[0].grad is not None and bool((seen[0].grad.abs().sum(-1) > 0).all())


def test_chunked_logits_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    completions = random_completions()
    whole, chunked = tiny_policy(perturb=0.1), tiny_policy(perturb=0.1)
    expected = whole.logprobs(completions)
    expected.logprobs.sum().backward()
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", 5 * VOCABULARY)
    scores = chunked.logprobs(completions)
    scores.logprobs.sum().backward()
    assert torch.allclose(scores.logprobs, expected.logprobs, atol=1e-6)
    assert torch.allclose(scores.entropy, expected.entropy, atol=1e-6)
    for a, b in zip(whole.trainable_parameters(), chunked.trainable_parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert torch.allclose(a.grad, b.grad, atol=1e-5)


def test_gradient_checkpointing_changes_nothing() -> None:
    completions = random_completions()
    plain, saving = tiny_policy(perturb=0.1), tiny_policy(perturb=0.1, gradient_checkpointing=True)
    for policy in (plain, saving):
        policy.logprobs(completions).logprobs.sum().backward()
    for a, b in zip(plain.trainable_parameters(), saving.trainable_parameters(), strict=True):
        assert a.grad is not None and b.grad is not None
        assert torch.allclose(a.grad, b.grad, atol=1e-5)


@pytest.mark.parametrize("shared_prefix", [False, True])
def test_reference_is_the_model_without_adapter(shared_prefix: bool) -> None:
    completions = random_completions()
    fresh, moved = tiny_policy(), tiny_policy(perturb=0.2)
    expected = fresh.logprobs(completions).logprobs
    reference = moved.logprobs(completions, reference=True, shared_prefix=shared_prefix).logprobs
    assert not reference.requires_grad
    assert torch.allclose(reference, expected, atol=1e-5)
    assert not torch.allclose(moved.logprobs(completions).logprobs, expected, atol=1e-2)
    assert all(p.requires_grad for p in moved.trainable_parameters()) and moved.trainable_parameters()


def test_only_the_adapter_trains_and_its_seed_decides() -> None:
    state = torch.get_rng_state()
    one, same, other = tiny_policy(), tiny_policy(), tiny_policy(seed=1)
    assert torch.equal(state, torch.get_rng_state())
    names = [n for n, p in one.model.named_parameters() if p.requires_grad]
    assert names and all("lora_" in n for n in names)
    assert len(names) == 2 * 7 * 2  # A and B of seven linear layers in two blocks; not the tied head
    values = [[p.detach() for p in x.trainable_parameters()] for x in (one, same, other)]
    assert all(torch.equal(a, b) for a, b in zip(values[0], values[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(values[0], values[2], strict=True))


def test_rank_64_fits_a_model_of_width_32() -> None:
    policy = tiny_policy(rank=64)
    policy.logprobs(random_completions()).logprobs.sum().backward()
    assert all(p.grad is not None for p in policy.trainable_parameters())


def test_the_saved_adapter_loads_with_peft_and_back(tmp_path: Path) -> None:
    policy = tiny_policy(perturb=0.1)
    completions = random_completions()
    expected = policy.logprobs(completions).logprobs
    policy.save_adapter(tmp_path / "adapter")
    again = tiny_policy()
    again.load_adapter(tmp_path / "adapter")
    assert torch.equal(again.logprobs(completions).logprobs, expected)
    plain = AutoModelForCausalLM.from_config(policy.base.config)
    plain.load_state_dict(tiny_policy().model.unload().state_dict())
    loaded = PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    assert torch.allclose(loaded(ids).logits, policy.model(input_ids=ids).logits, atol=1e-6)
    with pytest.raises(ConfigError, match="another shape"):
        tiny_policy(rank=8).load_adapter(tmp_path / "adapter")


def test_prompts_are_encoded_with_the_chat_template() -> None:
    policy = tiny_policy()
    assert policy.encode(Prompt("4 5", "6 7")) == [2, 4, 5, 6, 7, 3]
    bare = NumberTokenizer()
    bare.chat_template = ""
    policy.tokenizer = bare
    with pytest.raises(ConfigError, match="chat template"):
        policy.encode(Prompt("4 5", "6 7"))


def test_embeddings_are_unit_vectors_that_training_does_not_move() -> None:
    texts = ["4 5 6", "4 5 7 8 9", "", "15 16"]
    fresh, moved = tiny_policy(), tiny_policy(perturb=0.2)
    vectors = fresh.embed(texts)
    assert vectors.shape == (4, 32) and vectors.dtype.name == "float32"
    assert (vectors**2).sum(1) == pytest.approx([1.0] * 4, abs=1e-5)
    assert moved.embed(texts) == pytest.approx(vectors, abs=1e-6)
    assert fresh.embed(texts[1:2])[0] == pytest.approx(vectors[1], abs=1e-5)  # padding leaves no trace
    assert fresh.embed([]).shape == (0, 32)
    assert fresh.model.training


def test_mistakes_in_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"model\.model_name='/nowhere'"):
        Policy.load("/nowhere", ModelConfig(model_name="/nowhere"))
    with pytest.raises(ConfigError, match=r"model\.dtype='float33'"):
        resolve_dtype("float33", torch.device("cpu"), 1)
    with pytest.raises(ValueError, match="at least one token"):
        tiny_policy().logprobs([Completion("", (1,), (), (), "length")])


@pytest.mark.parametrize(("variable", "threads"), [(None, 1), ("3", 3)])
def test_a_small_model_takes_one_thread_unless_told_otherwise(
    variable: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    try:
        torch.set_num_threads(3)
        fit_threads(tiny_policy())
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_a_mamba_model_is_refused_with_the_layers_that_an_adapter_reaches(kind: str) -> None:
    """PEFT refuses its out_proj; what is named instead trains, every layer of it."""
    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "n_groups": 1}
    architecture = AutoConfig.for_model(kind, **{**small, "state_size": 4})

    def made(**settings: Any) -> Policy:
        return Policy.from_config(architecture, None, ModelConfig(device="cpu", lora_rank=2, **settings))

    with pytest.raises(ConfigError, match=rf"is a Mamba model \({kind}\)") as refused:
        made()
    layers = str(refused.value).rpartition("[")[2].removesuffix("]").split(", ")
    assert "in_proj" in layers
    policy = made(lora_target_modules=layers)
    policy.logprobs([Completion("", (1, 2), (3, 4, 5), (), "stop")]).logprobs.sum().backward()
    moved = {n: p.grad for n, p in policy.model.named_parameters() if "lora_B" in n}
    assert len(moved) == 2 * len(layers)
    assert all(grad is not None and grad.abs().sum() > 0 for grad in moved.values())
