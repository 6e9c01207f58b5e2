"""The policy: its adapter, templates and thoughts."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny import NumberTokenizer, logprobs_of, random_completions, tiny_policy
from jinja2 import Environment

from llm_as_judge.assembly.policy import load_policy
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.policy.chat import UserTurn, chat_ids, joined, text_of
from llm_as_judge.policy.device import resolve_dtype
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.thinking import ThinkingEngine
from llm_as_judge.types import Completion, Prompt


def test_only_the_adapter_trains_and_the_reference_is_the_model_without_it() -> None:
    completions = random_completions()
    fresh, moved = tiny_policy(), tiny_policy(perturb=0.2)
    expected = logprobs_of(fresh, completions)
    for shared_prefix in (False, True):
        reference = logprobs_of(moved, completions, reference=True, shared_prefix=shared_prefix).logprobs
        assert not reference.requires_grad and torch.allclose(reference, expected.logprobs, atol=1e-5)
    for budget in (10**6, 30):
        rows = moved.known_logprobs(completions, Sampling(), "tree", budget, reference=True)
        assert torch.allclose(torch.cat(rows), expected.logprobs[expected.mask], atol=1e-5)
    assert not torch.allclose(logprobs_of(moved, completions).logprobs, expected.logprobs, atol=1e-2)
    assert all(p.requires_grad for p in moved.trainable_parameters) and moved.trainable_parameters
    state = torch.get_rng_state()
    one, same, other = tiny_policy(), tiny_policy(), tiny_policy(seed=1)
    assert torch.equal(state, torch.get_rng_state())
    names = [n for n, p in one.model.named_parameters() if p.requires_grad]
    assert names and all("lora_" in n for n in names)
    assert len(names) == 2 * 7 * 2  # A and B of seven linear layers in two blocks; not the tied head
    values = [[p.detach() for p in x.trainable_parameters] for x in (one, same, other)]
    assert all(torch.equal(a, b) for a, b in zip(values[0], values[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(values[0], values[2], strict=True))


def test_adapters_never_widen_their_inputs_in_low_precision() -> None:
    policy, seen = tiny_policy(dtype="bfloat16", gradient_checkpointing=True), list[torch.dtype]()
    adapters = [m for name, m in policy.base.named_modules() if name.endswith("lora_A.default")]
    for module in adapters:
        module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    for shared_prefix in (False, True):
        logprobs_of(policy, random_completions(), shared_prefix=shared_prefix).logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert seen == 4 * len(adapters) * [torch.bfloat16]  # of both layouts, forward and again in the backward pass


@pytest.mark.gpu
def test_embeddings_are_unit_vectors_that_training_does_not_change(device: str) -> None:
    texts = ["4 5 6", "4 5 7 8 9", "", "15 16"]
    fresh, moved = tiny_policy(device=device), tiny_policy(perturb=0.2, device=device)
    vectors = fresh.embed(texts)
    assert vectors.shape == (4, 32) and vectors.dtype.name == "float32"
    assert (vectors**2).sum(1) == pytest.approx([1.0] * 4, abs=1e-5)
    assert moved.embed(texts) == pytest.approx(vectors, abs=1e-6)
    rough, long = tiny_policy(dtype="bfloat16", hidden=128, device=device), [*texts, "9 4 22 11 2 " * 12]
    alone = [rough.embed([text])[0] for text in long]
    assert (rough.embed(long) == alone).all()  # bit for bit, because a resumed run embeds other texts together
    assert fresh.model.training


def test_wrong_settings_are_named() -> None:
    policy = tiny_policy()
    assert policy.encode(Prompt("4 5", "6 7")) == [2, 4, 5, 6, 7, 3]
    policy.tokenizer = NumberTokenizer()
    policy.tokenizer.chat_template = ""
    with pytest.raises(ConfigError, match="chat template"):
        policy.encode(Prompt("4 5", "6 7"))
    with pytest.raises(ConfigError, match=r"model\.model_name='/nowhere'"):
        Policy.load("/nowhere", ModelConfig(model_name="/nowhere"))
    with pytest.raises(ValueError, match="at least one token"):
        logprobs_of(tiny_policy(), [Completion("", (1,), (), (), "length")])


def test_bfloat16_is_refused_where_the_card_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    for capability, ok in (((7, 5), False), ((8, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        for name in ("auto", "bfloat16"):
            with nullcontext() if ok else pytest.raises(ConfigError, match="T4 has no bfloat16; set model"):
                assert resolve_dtype(name, torch.device("cuda"), 1) == torch.bfloat16
        assert resolve_dtype("float32", torch.device("cuda"), 1) == torch.float32
    with pytest.raises(ConfigError, match=r"model\.dtype = 'float16': Input should be 'auto', 'float32' or 'bfloat16'"):
        load_config(None, ["model.dtype=float16"])  # there is no loss scaling


def test_an_adapter_that_is_used_brings_its_shape_and_one_that_is_trained_must_fit(tmp_path: Path) -> None:
    own = ["lora_rank=4", "lora_alpha=8", "lora_target_modules=[v_proj, q_proj]"]
    load_policy(load_config("config/embedded.yaml", own)).save_adapter(tmp_path)
    assert load_policy(load_config("config/embedded.yaml"), tmp_path).config.lora_rank == 4
    shape = r"is (\(4, \d+\)|missing) in it and .* here; .* set model.lora_rank=4, .*8.0, .*=\[q_proj, v_proj\]"
    for settings in ([], ["lora_rank=4", "lora_alpha=8"]):
        with pytest.raises(ConfigError, match=shape):
            load_policy(load_config("config/embedded.yaml", [*settings, f"model.adapter={tmp_path}"]))


def test_broken_adapters_are_refused_and_strange_ones_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny_policy(lora_alpha=16).save_adapter(tmp_path)
    with pytest.raises(ConfigError, match=r"lora_alpha=16\.0.*model\.lora_alpha=8"):
        tiny_policy().load_adapter(tmp_path)
    tiny_policy(lora_alpha=16).load_adapter(tmp_path)
    saved = tiny_policy()
    for base, own, warned in (
        ("Some/Model-1B", "Some/Model-1B", False),
        ("Some/Model-1B", "/models/model-1b/", False),
        ("Some/Model-1B", "/hub/models--Some--Model-1B/snapshots/0a1b", False),
        ("Other/Model-2B", "Some/Model-1B", True),
        ("", "Some/Model-1B", False),
    ):
        saved.model.peft_config["default"].base_model_name_or_path = base
        saved.save_adapter(tmp_path)
        policy = tiny_policy()
        policy.base.config.name_or_path = own
        caplog.clear()
        policy.load_adapter(tmp_path)
        assert ("is an adapter for Other/Model-2B and fits by its shape only" in caplog.text) == warned, (base, own)
    for value in (float("nan"), float("inf")):
        with torch.no_grad():
            next(iter(saved.trainable_parameters))[0, 0] = value
        saved.save_adapter(tmp_path)
        with pytest.raises(DataError, match=r"has NaN or infinite weights, such as .*lora_A.*; give another folder"):
            tiny_policy().load_adapter(tmp_path)


CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise('no system role') }}{% endif %}" + CHATML
DROPS_SYSTEM = CHATML.replace("in messages %}", "in messages if m.role != 'system' %}")
LAST_ONLY = CHATML.replace("in messages %}", "in messages[-1:] %}")
PROMPT = Prompt("Rules.", "Third?", (("First?", "one"), ("Second?", "two")), "Well, ")


class Letters:
    """A tokenizer with one token per letter."""

    all_special_tokens = ("<eos>", "")

    def __init__(self, template: str = "") -> None:
        environment = Environment()
        environment.globals["raise"] = self._refuse
        self._template = environment.from_string(template)

    def _refuse(self, why: str) -> str:
        raise ValueError(why)

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int]) -> str:
        return "".join("<eos>" if i == 0 else chr(i) for i in token_ids)

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **options: Any) -> Any:
        text = self._template.render(messages=messages, **options)
        return self.encode(text) if tokenize else text


def test_templates_get_what_they_accept_and_texts_have_no_special_tokens() -> None:
    rest = "\n<|assistant|>one\n<|user|>Second?\n<|assistant|>two\n<|user|>Third?\n<|assistant|>Well, "
    cases = {
        CHATML: f"<|system|>Rules.\n<|user|>First?{rest}",
        NO_SYSTEM: f"<|user|>Rules.\n\nFirst?{rest}",
        DROPS_SYSTEM: f"<|user|>Rules.\n\nFirst?{rest}",
        LAST_ONLY: "<|user|>Rules.\n\nFirst?\n\none\n\nSecond?\n\ntwo\n\nThird?\n<|assistant|>Well, ",
    }
    found = {template: "".join(map(chr, chat_ids(Letters(template), PROMPT))) for template in cases}
    assert found == cases
    ids = chat_ids(Letters(CHATML), Prompt("", "Only?"))
    assert "".join(map(chr, ids)) == "<|system|>\n<|user|>Only?\n<|assistant|>"
    cases = {
        "x = 1": "x = 1", "x = 1 \0\0\n\0": "x = 1", "\0 x = 1": "x = 1", "s = '\0' + 1": "s = '<eos>' + 1", "\0": "",
        "": "",
    }  # fmt: skip
    assert {written: text_of(Letters(), list(map(ord, written))) for written in cases} == cases
    told = UserTurn(0, (), ()).ids(Letters(), "a<eo<eos>s>b", "", ended=True)
    assert "<eos>" not in "".join(map(chr, told)) and len(told) > 2


END = 22


class Thinking(NumberTokenizer):
    """Renders thoughts like Qwen3's template: those of earlier turns are left out, an empty block switches them off."""

    eos_token_id, turns = 1, True

    def decode(self, token_ids: Sequence[int], **kwargs: Any) -> str:
        return " ".join("</think>" if i == END else str(i) for i in token_ids)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [
            i for word in text.split() for i in ([END] if word == "</think>" else super(Thinking, self).encode(word))
        ]

    def apply_chat_template(self, messages: list[dict[str, str]], **kwargs: Any) -> list[int] | str:
        if len(messages) > 2 and not self.turns:
            raise ValueError("one turn only")
        shown = [m["content"].rpartition("</think>")[2] for m in messages]
        text = " 1 2 ".join(shown) + " 1 3" + ("" if kwargs["enable_thinking"] else " 20 </think>")
        return self.encode(text) if kwargs.get("tokenize", True) else text


def test_thoughts_are_switched_in_the_template() -> None:
    tokenizer, prompt = Thinking(), Prompt("4", "5")
    assert chat_ids(tokenizer, prompt, thinking=True) == [4, 1, 2, 5, 1, 3]
    assert chat_ids(tokenizer, prompt) == [4, 1, 2, 5, 1, 3, 20, END]
    on, off = (UserTurn.of(tokenizer, {1}, thinking) for thinking in (True, False))
    assert on.before == off.before == (2,) and on.after == (1, 3) and off.after == (1, 3, 20, END)
    with pytest.raises(ConfigError, match="knows no thinking"):
        ThinkingEngine(None, NumberTokenizer(), 3)
    tokenizer.turns = False
    with pytest.raises(ConfigError, match="refuses; set"):
        UserTurn.of(tokenizer, {1})
    with pytest.raises(ConfigError, match="prefill"):
        load_config(None, ["generation.thinking=true", "workflow.prefill=true"])


def test_long_thoughts_are_closed_and_stay_in_later_turns() -> None:
    policy = tiny_policy(family="qwen3")
    policy.tokenizer, policy.thinking = Thinking(), True
    inner = LocalEngine(policy, policy.tokenizer)
    engine, prompts = ThinkingEngine(inner, policy.tokenizer, 6), [[4, 5, 6], [4, 5, 7, 8]]
    closing, started = engine._closing, list[tuple[int, int]]()
    groups = engine.generate(prompts, 8, max_new_tokens=5, seed=3, on_completion=lambda i, k, c: started.append((i, k)))
    assert sorted(started) == [(i, k) for i in range(2) for k in range(8)]
    kinds = set()
    for completion in (c for group in groups for c in group):
        ids, given = list(completion.token_ids), [i for i, own in enumerate(completion.sampled) if not own]
        if given:
            assert [ids[i] for i in given] == closing and given[0] == 6 and END not in ids[:6]
            assert "</think>" in completion.text
        kinds.add(("closed" if given else "open", len(ids) > 6))
        first = inner.generate(prompts, 8, max_new_tokens=6, seed=3)
        assert tuple(ids[: min(6, len(ids))]) in {c.token_ids[:6] for group in first for c in group}
    assert ("closed", True) in kinds and ("open", False) in kinds
    whole = [c for group in groups for c in group]
    with torch.no_grad():
        scores = logprobs_of(policy, whole, Sampling())
    for row, completion in zip(scores.logprobs, whole, strict=True):
        own = torch.tensor(completion.sampled)
        assert torch.allclose(row[: len(own)][own], torch.tensor(completion.logprobs)[own], atol=1e-4)
    closed = next(c for c in whole if c.mask)
    prompt = policy.told(closed, "9 9")
    assert prompt[: len(closed.prompt_ids) + len(closed.token_ids)] == [*closed.prompt_ids, *closed.token_ids]
    (again,) = engine.generate([prompt], 1, max_new_tokens=5, seed=4)
    episode = joined(closed, prompt, again[0])
    assert len(episode.mask) == len(episode.token_ids) == len(episode.logprobs) and episode.text == again[0].text
