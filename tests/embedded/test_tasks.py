"""The generated problems are correct, and the splits are disjoint."""

from __future__ import annotations

from random import Random

import pytest

from llm_as_judge.embedded.tasks import coding, maths, reading
from llm_as_judge.embedded.tasks.generate import coding_item, maths_item, passage, problems, split_of
from llm_as_judge.types import DOMAINS, Domain


def test_program_steps_and_answer_agree() -> None:
    r = Random(1)
    for _ in range(300):
        item = maths.draw(r)
        names: dict[str, object] = {}
        exec(item.program, names)
        assert str(names["solve"]()) == item.answer  # type: ignore[operator]
        for line in item.reasoning.splitlines():
            left, right = line.split("=")
            assert eval(left.replace("/", "//")) == int(right)
        assert item.reasoning.endswith(f"={item.answer}")


def test_the_passage_contains_the_evidence_and_the_evidence_the_answer() -> None:
    r = Random(2)
    for _ in range(200):
        p = reading.draw(r)
        for q in p.queries:
            assert all(sentence in p.text for sentence in q.evidence)
            assert q.answer in q.evidence[-1]


def test_public_tests_separate_the_intended_reading_from_the_others() -> None:
    r = Random(3)
    for _ in range(100):
        item = coding.draw(r)
        assert all(coding.call(item.solution, x) == y for x, y in item.cases)
        assert all(any(coding.call(o, x) != y for x, y in item.cases[:2]) for o in item.others)


@pytest.mark.parametrize("domain", DOMAINS)
def test_train_heldout_and_pretrain_problems_are_disjoint(domain: Domain) -> None:
    def key(text: str, context: str) -> str:
        return context or text

    sides = {
        side: {key(p.question.text, p.question.context) for p in problems(domain, side, 60)}
        for side in ("pretrain", "train", "heldout")
    }
    assert not sides["train"] & sides["heldout"]
    assert not sides["pretrain"] & (sides["train"] | sides["heldout"])
    for side, keys in sides.items():
        assert {split_of(k) for k in keys} == {side}


def test_pretraining_draws_only_from_its_own_split() -> None:
    r = Random(4)
    for _ in range(30):
        assert split_of(maths_item(r, "pretrain").text) == "pretrain"
        assert split_of(passage(r, "pretrain").text) == "pretrain"
        assert split_of(coding_item(r, "pretrain").text) == "pretrain"


def test_the_same_seed_gives_the_same_problems_and_another_gives_others() -> None:
    assert problems("qa", "train", 5, seed=1) == problems("qa", "train", 5, seed=1)
    assert problems("qa", "train", 5, seed=1) != problems("qa", "train", 5, seed=2)
