"""The experience buffer: what it keeps, what it drops, what it finds again."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from helpers.workflows import workflow
from numpy.typing import NDArray

from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.rl.buffer import Experience, ExperienceBuffer
from llm_as_judge.workflow.lint.check import lint


def code(operator: str = "Custom") -> str:
    return workflow("return (await self.a(problem))['response']", init=f"self.a = operator.{operator}(self.llm)")


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """A stand-in for the embedding: counts of a, b and c, scaled to unit length."""
    counts = np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True).clip(1e-9)


def experience(id_: str = "p", reward: float = 9.0, text: str = "a", workflow: str = code()) -> Experience:
    facts = lint(workflow)
    return Experience(id_, text, workflow, reward, "math", 1, facts.shape, facts.digest)


def buffer(directory: Path | None = None, **settings: Any) -> ExperienceBuffer:
    return ExperienceBuffer(BufferConfig(**settings), letters, directory)


def test_only_good_rewards_are_kept_and_copies_once_with_the_best() -> None:
    b = buffer()
    assert not b.add(experience(reward=7.99)) and not b.add(experience(reward=float("nan")))
    assert b.add(experience(reward=8.0)) and len(b) == 1
    b = buffer()
    b.add(experience(reward=8.5))
    layout = code().replace("(self.llm)", "( self.llm )  # comment") + "\n\n"
    assert not b.add(experience(reward=8.4, workflow=layout))
    assert b.add(experience("another id", reward=9.5, text=" A ", workflow=layout))
    assert [e.reward for e in b.entries("math")] == [9.5]
    assert b.add(experience(id_="other", text="aa", reward=8.4))
    assert len(b) == 2


def test_a_full_domain_drops_its_worst_and_the_most_similar_come_first() -> None:
    b = buffer(buffer_size=2)
    for id_, reward, operator in (("1", 8.2, "Custom"), ("2", 9.0, "Review")):
        b.add(experience(id_, reward, workflow=code(operator)))
    assert not b.add(experience("3", 8.1, workflow=code("Format")))
    assert b.add(experience("4", 8.3, workflow=code("Format")))
    assert {e.problem_id for e in b.entries("math")} == {"2", "4"}
    assert b.add(replace(experience("5", 8.1), domain="qa"))
    b = buffer(buffer_size=4)
    for i in range(6):
        b.add(experience(str(i), 9.0 + i / 10, f"a {i}"))
    assert [e.problem_id for e in b.entries("math")] == ["4", "5"]
    assert b.add(experience("p", 8.0, workflow=code("Programmer"))) and len(b) == 3
    b = buffer()
    b.add(experience("near", 8.1, "aab"))
    b.add(experience("same-direction", 8.2, "aaab aaab"))
    b.add(experience("same-direction-better", 9.0, "aaab"))
    b.add(experience("far", 9.5, "ccc"))
    found = [e.problem_id for e in b.top_k("aaab aaab aaab", "math")]
    assert found == ["same-direction-better", "same-direction", "near"]
    assert b.top_k("a", "qa") == []


def test_a_problem_never_gets_its_own_example_and_is_embedded_once() -> None:
    b = buffer()
    b.add(experience("me", 9.9, "a question"))
    b.add(experience("me-under-another-id", 9.9, "A  question"))
    b.add(experience("you", 8.0, "b"))
    for text, id_ in (("a question", "me"), ("a", "me"), ("a QUESTION", "a third id")):
        assert [e.problem_id for e in b.top_k(text, "math", problem_id=id_)] == ["you"]
    asked: list[str] = []
    b = ExperienceBuffer(BufferConfig(top_k=1), lambda texts: letters(asked.extend(texts) or texts))  # type: ignore[func-returns-value]
    b.add(experience("p", text="a b"))
    b.top_k("b", "math")
    b.top_k("c", "math")
    assert sorted(asked) == ["a b", "b", "c"]


def test_files_are_written_best_first_and_the_state_comes_back(tmp_path: Path) -> None:
    b = buffer(tmp_path)
    for id_, reward, text in (("1", 8.5, "wörter"), ("2", 9.5, "a"), ("3", 9.0, "b")):
        b.add(experience(id_, reward, text))
    b.save()
    files = [f"{domain}_top_samples.jsonl" for domain in ("code", "math", "qa")]
    assert sorted(p.name for p in tmp_path.iterdir()) == files
    lines = (tmp_path / files[1]).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reward"] for line in lines] == [9.5, 9.0, 8.5]
    again = buffer()
    again.add(experience("gone"))
    again.load_state_dict(json.loads(json.dumps(b.state_dict())))
    assert again.entries("math") == b.entries("math")
