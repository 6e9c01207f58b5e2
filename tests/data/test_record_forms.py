"""Files in the form of a benchmark that are another one: names in results, answers, options, copies, hidden suites."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.samples import write_lines

from llm_as_judge.assembly.check import check_golds
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.problems import measured_problems, read_problems
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.host import Sandbox

GSM8K = {"question": "How many legs have 3 cows?", "answer": "3 cows have 3*4=<<3*4=12>>12 legs.\n#### 12"}
MATH = {"problem": "Find $x$.", "solution": "It is $\\boxed{5}$.", "level": "Level 1", "type": "Algebra"}
CHOICES = {"text": ["red", "green", "blue", "grey"], "label": ["A", "B", "C", "D"]}
ARC = {"id": "q1", "question": "What colour is grass?", "choices": CHOICES, "answerKey": "B"}
SQUAD = {"question": "Who won?", "context": "Ann won.", "answers": {"text": ["Ann"]}}
HUMANEVAL = {
    "task_id": "HumanEval/3", "prompt": 'def half(x):\n    """Half of x."""\n', "entry_point": "half",
    "canonical_solution": "    return x / 2\n", "test": "def check(candidate):\n    assert candidate(8) == 4\n",
}  # fmt: skip
MBPP = {
    "task_id": 11, "prompt": "Write a function that doubles.", "code": "def double(x):\n    return 2 * x",
    "test_list": ["assert double(1) == 2"],
}  # fmt: skip


def test_each_benchmark_has_its_own_name_in_results(tmp_path: Path) -> None:
    wrong = []
    for name, record, expected in (
        ("raw/test.jsonl", GSM8K, ""), ("sums.jsonl", {**GSM8K, "answer": "#### 12"}, "sums"),
        ("gsm8k_test.jsonl", {**GSM8K, "answer": "#### 12"}, ""),
        ("x.jsonl", MATH, ""), ("contest.jsonl", {"problem": "?", "solution": "\\boxed{1}"}, "contest"),
        ("contest/test.jsonl", {"problem": "?", "solution": "\\boxed{1}", "answer": "1"}, "contest_test"),
        ("science.jsonl", ARC, "science"), ("x.jsonl", {**ARC, "question_concept": "grass"}, ""),
        ("squad1.jsonl", SQUAD, "squad1"), ("x.jsonl", {**SQUAD, "is_impossible": False}, ""),
        ("x.jsonl", HUMANEVAL, ""),
        ("mine.jsonl", {**HUMANEVAL, "task_id": "HumanEval/900"}, "mine"),
        ("x.jsonl", MBPP, ""),
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / name, [record]))
        if problem.benchmark != expected:
            wrong.append((name, record, problem.benchmark))
    assert not wrong
    file = write_lines(tmp_path / "squad.jsonl", [SQUAD, {**SQUAD, "question": "Who lost?", "answers": {"text": []}}])
    assert [p.benchmark for p in read_problems(file)] == ["", ""], "an unanswerable question is SQuAD 2.0's alone"


def test_the_records_own_suite_decides(tmp_path: Path) -> None:
    suite = "for x, y in [(1, 2), (5, 10)]:\n    assert double(x) == y\n"
    (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**MBPP, "test": suite}]))
    assert problem.reference.tests == suite and problem.question.public_tests == ("assert double(1) == 2",)
    own = {"type": "code", "problem": "Double.", "entry_point": "double", "tests": MBPP["test_list"], "test": suite}
    for record, reason in (
        (own, "fields tests and test hold different tests"), ({**HUMANEVAL, "plus_input": [[1]]}, "'plus_input'"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=reason):
            read_problems(write_lines(tmp_path / "b.jsonl", [record]))


async def test_the_answer_column_of_a_record_in_the_form_of_math_is_used(tmp_path: Path) -> None:
    records = [
        {"problem": "One?", "solution": "By counting, 7.", "answer": "7"},
        {"problem": "Two?", "solution": "So $\\boxed{8}$.", "answer": 9},
        {"problem": "Three?", "solution": "So $\\boxed{10}$.", "answer": None},
    ]
    file = write_lines(tmp_path / "a.jsonl", records)
    assert [p.reference.answers for p in read_problems(file)] == [("7",), ("9",), ("10",)]
    with pytest.raises(DataError, match="no field 'answer', and field 'solution' has no"):
        read_problems(write_lines(tmp_path / "b.jsonl", [{"problem": "?", "solution": "7"}]))
    report = await _checked(file)
    assert len(report.failures) == 1 and "8" in report.failures[0].reason, "the box contradicts the answer"


async def _checked(file: Path) -> Any:
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        return await check_golds([file], None, sandbox)


async def test_tests_that_cannot_run_are_one_fault_and_the_rest_is_checked(tmp_path: Path) -> None:
    bad = {**HUMANEVAL, "test": "import no_such_module\n" + HUMANEVAL["test"]}
    wrong = {**HUMANEVAL, "canonical_solution": "    return x\n"}
    report = await _checked(write_lines(tmp_path / "a.jsonl", [bad, HUMANEVAL, wrong]))
    assert report.records == 3 and len(report.failures) == 2
    named = next(failure for failure in report.failures if "no_such_module" in failure.reason)
    assert named.id == f"{tmp_path}/a.jsonl:1"


def test_options_that_a_question_needs_are_shown_with_it(tmp_path: Path) -> None:
    options, base = ["red", "green", "blue"], {"type": "qa", "question": "What colour is grass?"}
    shown = "What colour is grass?\nA. red\nB. green\nC. blue"
    columns = {"A": "red", "B": "green", "C": "blue"}
    wrong = []
    for record in (
        {"options": options, "answer": "B"}, {"options": options, "answer": "(B)", "answer_index": 1},
        {"choices": options, "answer": 1}, {"choices": options, "answer": "green"},
        {"choices": {"label": [*"ABC"], "text": options}, "answer": "B"}, {"endings": options, "answer": "B"},
        {"options": columns, "answer": "B"}, {**columns, "answer": "B"},
        {**{f"option_{k.lower()}": v for k, v in columns.items()}, "answer": "B"},
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**base, **record}]))
        if problem.question.text != shown or problem.reference.answers != ("B", "B. green", "green"):
            wrong.append((record, problem))
    for record in (  # nothing is missing
        {"answer": "B"}, {"tags": ["a", "b"], "answer": "green"}, {"tags": ["a", "b"], "answer": "green", "n": 2},
        {"question": shown, "options": options, "answer": "B"},
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**base, **record}]))
        if problem.question.text != record.get("question", base["question"]):
            wrong.append((record, problem))
    assert not wrong
    for more in ({"answer": "green"}, {"choices": [*"abcd"], "answer": 1}):  # the second in the form of MMLU
        parts = {"passage": "Grass.", "table": "| 1 |"}
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{"question": "What?", **parts, **more}]))
        assert problem.question.context == "Grass.\n\n| 1 |" and problem.question.text.startswith("What?")
    unclear = {**base, "answer": "B", "left": options, "right": options}
    with pytest.raises(DataError, match="the options may be in left or right"):
        read_problems(write_lines(tmp_path / "b.jsonl", [unclear]))


def test_copies_are_left_out_and_a_limit_spreads_over_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [kind for kind in ("sum", "root", "area", "odds") for _ in range(50)]
    records = [
        {"problem": f"{kind} {i}?", "answer": str(i), "type": "math", "id": n}
        for n, (i, kind) in enumerate([*enumerate(kinds)] * 2)
    ]
    file = write_lines(tmp_path / "a.jsonl", records)
    with caplog.at_level(logging.WARNING):
        assert len(measured_problems(file)) == 200
    assert "200 of 400 problems are copies of others" in caplog.text
    chosen = measured_problems(file, 40)
    assert len(chosen) == 40 == len({p.question.text for p in chosen})
    shares = Counter(p.question.text.split()[0] for p in chosen)
    assert len(shares) == 4 and min(shares.values()) >= 5, shares
    contradicting = [{**records[0], "answer": str(n)} for n in range(3)]
    assert len(measured_problems(write_lines(tmp_path / "b.jsonl", contradicting))) == 3


def test_a_mix_that_repeats_a_small_dataset_keeps_its_shares_among_distinct_problems(tmp_path: Path) -> None:
    maths = [{"problem": f"What is {i} + 1?", "answer": str(i + 1), "type": "math"} for i in range(3)] * 10
    others = [{"problem": f"Who wrote book {i}?", "answer": f"author {i}", "type": "qa"} for i in range(30)]
    chosen = measured_problems(write_lines(tmp_path / "mix.jsonl", maths + others), 6)
    assert Counter(p.question.domain for p in chosen) == {"math": 3, "qa": 3}
