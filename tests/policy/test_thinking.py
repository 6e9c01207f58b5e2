"""Thoughts: closed by force at their limit, trained on as sampled, kept in later turns, left out of the workflow."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.tiny import NumberTokenizer, logprobs_of, tiny_policy

from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.chat import UserTurn, chat_ids, joined
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.thinking import ThinkingEngine
from llm_as_judge.types import Prompt

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
