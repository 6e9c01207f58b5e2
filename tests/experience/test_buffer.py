"""The experience buffer: what it keeps, what it drops, what it finds again."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.experience.buffer import Experience, ExperienceBuffer
from llm_as_judge.experience.embedding import SentenceEmbedder

CODE = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.a = operator.{0}(self.llm)
    async def __call__(self, problem):
        return (await self.a(problem))["{0}"]
"""


def letters(texts: list[str]) -> list[list[float]]:
    """A stand-in for the embedding: counts of a, b and c."""
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def experience(
    id_: str = "p", reward: float = 9.0, text: str = "a", workflow: str = CODE.format("Custom")
) -> Experience:
    return Experience(id_, text, workflow, reward, "math", 1)


def buffer(directory: Path | None = None, **settings: Any) -> ExperienceBuffer:
    return ExperienceBuffer(BufferConfig(persistence_dir=directory, **settings), letters)


def test_only_rewards_from_the_threshold_on_are_kept() -> None:
    b = buffer()
    assert not b.add(experience(reward=7.99))
    assert not b.add(experience(reward=float("nan")))
    assert b.add(experience(reward=8.0))
    assert len(b) == 1


def test_copies_are_kept_once_with_the_best_reward() -> None:
    b = buffer()
    b.add(experience(reward=8.5))
    layout = CODE.format("Custom").replace("(self.llm)", "( self.llm )  # comment") + "\n\n"
    assert not b.add(experience(reward=8.4, workflow=layout))
    assert b.add(experience(reward=9.5, workflow=layout))
    assert [e.reward for e in b.entries("math")] == [9.5]
    assert b.add(experience(id_="other", text="aa", reward=8.4))
    assert b.add(experience(reward=8.4, workflow="not python ("))
    assert not b.add(experience(reward=8.4, workflow="not   python  ("))
    assert len(b) == 3


def test_a_full_domain_drops_its_worst_and_only_for_a_better_one() -> None:
    b = buffer(buffer_size=2)
    for id_, reward, operator in (("1", 8.2, "Custom"), ("2", 9.0, "Review")):
        b.add(experience(id_, reward, workflow=CODE.format(operator)))
    assert not b.add(experience("3", 8.1, workflow=CODE.format("Format")))
    assert b.add(experience("4", 8.3, workflow=CODE.format("Format")))
    assert {e.problem_id for e in b.entries("math")} == {"2", "4"}
    assert b.add(replace(experience("5", 8.1), domain="qa"))


def test_no_shape_takes_more_than_its_share() -> None:
    b = buffer(buffer_size=4)
    for i in range(6):
        b.add(experience(str(i), 9.0 + i / 10, f"a {i}"))
    assert [e.problem_id for e in b.entries("math")] == ["4", "5"]
    assert b.add(experience("p", 8.0, workflow=CODE.format("Programmer")))
    assert len(b) == 3


def test_the_most_similar_problems_come_first_and_rewards_break_ties() -> None:
    b = buffer()
    b.add(experience("near", 8.1, "aab"))
    b.add(experience("same-direction", 8.2, "aaab aaab"))
    b.add(experience("same-direction-better", 9.0, "aaab"))
    b.add(experience("far", 9.5, "ccc"))
    found = [e.problem_id for e in b.top_k("aaab aaab aaab", "math")]
    assert found == ["same-direction-better", "same-direction", "near"]
    picky = buffer(top_k=9, min_similarity=0.5)
    picky.load_state_dict(b.state_dict())
    assert [e.problem_id for e in picky.top_k("c", "math")] == ["far"]
    assert b.top_k("a", "qa") == []


def test_a_problem_never_gets_its_own_example() -> None:
    b = buffer()
    b.add(experience("me", 9.9, "a question"))
    b.add(experience("me-under-another-id", 9.9, "a  question"))
    b.add(experience("you", 8.0, "b"))
    assert [e.problem_id for e in b.top_k("a question", "math", problem_id="me")] == ["you"]
    assert [e.problem_id for e in b.top_k("a", "math", problem_id="me")] == ["you"]


def test_stored_problems_are_embedded_once() -> None:
    asked: list[str] = []

    def counting(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return letters(texts)

    b = ExperienceBuffer(BufferConfig(top_k=1), counting)
    b.add(experience("p", text="a b"))
    b.top_k("b", "math")
    b.top_k("c", "math")
    assert sorted(asked) == ["a b", "b", "c"]


def test_files_come_back_and_nothing_is_left_beside_them(tmp_path: Path) -> None:
    b = buffer(tmp_path / "buffer")
    b.add(experience("1", 8.5, "wörter"))
    b.add(experience("2", 9.5))
    b.save()
    assert sorted(p.name for p in (tmp_path / "buffer").iterdir()) == [
        "code_top_samples.jsonl",
        "math_top_samples.jsonl",
        "qa_top_samples.jsonl",
    ]
    lines = (tmp_path / "buffer" / "math_top_samples.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reward"] for line in lines] == [9.5, 8.5]
    again = buffer(tmp_path / "buffer")
    again.load()
    assert set(again.entries("math")) == set(b.entries("math"))


def test_a_broken_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "math_top_samples.jsonl").write_text('{"problem_id": "x"}\n')
    with pytest.raises(DataError, match=r"math_top_samples\.jsonl:1"):
        buffer(tmp_path).load()


def test_state_restores_contents_in_order() -> None:
    b = buffer()
    for i in range(3):
        b.add(experience(str(i), 9.0 - i / 10))
    again = buffer()
    again.add(experience("gone"))
    again.load_state_dict(json.loads(json.dumps(b.state_dict())))
    assert again.entries("math") == b.entries("math")


def test_the_same_problem_under_another_id_is_a_copy_and_no_example_for_itself() -> None:
    b = buffer()
    b.add(experience("one", text="How many  apples?"))
    assert not b.add(experience("two", reward=8.9, text="how many apples?"))
    assert b.top_k("HOW many apples?", "math", problem_id="three") == []


def test_old_workflows_leave() -> None:
    b = buffer()
    b.add(experience("old", text="a"))
    b.add(replace(experience("new", text="b"), step=7))
    assert b.expire(7) == 1
    assert [e.problem_id for e in b.entries("math")] == ["new"]


def test_a_missing_sentence_transformers_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match="pip install sentence-transformers"):
        SentenceEmbedder("all-MiniLM-L6-v2")
