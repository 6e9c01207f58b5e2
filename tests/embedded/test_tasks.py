"""The generated problems are correct, the splits are disjoint, and only who reads a problem knows its kind."""

from __future__ import annotations

import re
from random import Random

from llm_as_judge.embedded.tasks import coding, maths, reading
from llm_as_judge.embedded.tasks.generate import KINDS, problems, split_of
from llm_as_judge.types import DOMAINS


def run(program: str) -> str:
    names: dict[str, object] = {}
    exec(program, names)
    return str(names["solve"]())  # type: ignore[operator]


def test_programs_steps_and_answers_agree() -> None:
    r = Random(1)
    tasks = [draw(r) for draw in maths.KINDS.values() for _ in range(150)]
    tasks += [task for _ in range(50) for task in reading.draw(r).tasks["numbers"]]
    for task in tasks:
        if task.program:
            assert run(task.program) == task.answer
            equations = [line for line in task.reasoning.splitlines() if "=" in line]
            for line in equations:
                left, right = line.split("=")
                assert eval(left.replace("/", "//")) == int(right)
            assert equations[-1].endswith(f"={task.answer}")


def test_the_steps_of_relays_follow_the_money() -> None:
    r = Random(2)
    for _ in range(100):
        task = maths.relays(r)
        paid = dict(re.findall(r"(\w+) pays (\w+)\.", task.text))
        at, steps = task.text.split()[-4], []
        while at in paid:
            steps.append(f"{at} pays {paid[at]}.")
            at = paid[at]
        assert at == task.answer and " ".join(steps) == task.reasoning and len(steps) == 2


def test_the_passage_contains_the_evidence_and_the_evidence_the_answer() -> None:
    r = Random(3)
    for _ in range(100):
        p = reading.draw(r)
        for kind, tasks in p.tasks.items():
            for task in tasks:
                evidence = task.reasoning.split("\n")[0]
                sentences = re.findall(r"[^.]+\.", evidence)
                assert tasks and all(s.strip() in p.text for s in sentences)
                assert len(sentences) == {"lookup": 1, "hops": 2, "numbers": 2}[kind]
                assert kind == "numbers" or task.answer in sentences[-1]


def test_tests_separate_the_intended_reading_from_the_others_and_a_long_task_from_its_draft() -> None:
    r = Random(4)
    for kind in KINDS["code"]:
        for _ in range(60):
            task = coding.draw(r, kind)
            assert all(coding.call(task.solution, x) == y for x, y in task.cases)
            assert all(any(coding.call(o, x) != y for x, y in task.cases[:2]) for o in task.others)
            assert bool(task.others) == (kind == "open") and bool(task.missing) == (kind == "long")
            assert bool(task.public) == (kind != "long")
            failed = any(coding.call(task.draft, x) != y for x, y in task.cases)
            assert failed == (kind == "long")


def test_problems_and_their_asides_belong_to_their_split() -> None:
    for domain in DOMAINS:
        for side in ("pretrain", "train", "heldout"):
            for question in (problem.question for problem in problems(domain, side, 60)):
                parts = [question.context] if question.context else question.text.split(" Never mind. ")
                assert {split_of(part) for part in parts} == {side}, question


def test_the_same_seed_gives_the_same_problems_and_another_gives_others() -> None:
    assert problems("qa", "train", 5, seed=1) == problems("qa", "train", 5, seed=1)
    assert problems("qa", "train", 5, seed=1) != problems("qa", "train", 5, seed=2)
    drawn = problems("math", "train", 6)
    assert [p.question.dataset for p in drawn] == [*KINDS["math"]] * 2
    assert all(p.question.id.startswith(f"embedded/{p.question.dataset}/") for p in drawn)
