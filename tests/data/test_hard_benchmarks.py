"""Benchmarks where a strong executor still errs, on records written by hand in their published fields.

The published sets themselves are not part of the repository and are not run here.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.samples import put, write_lines

from llm_as_judge.answers.metrics import scores
from llm_as_judge.assembly.check import check_golds
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.catalog import DATASETS, metric_of
from llm_as_judge.data.forms import parse, to_record
from llm_as_judge.data.problems import read_problems
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.host import Sandbox

MATH500 = {
    "problem": "What is $3^2 + \\frac12$?", "solution": "It is $\\boxed{\\frac{19}{2}}$.", "answer": "\\frac{19}{2}",
    "subject": "Prealgebra", "level": 2, "unique_id": "test/prealgebra/9.json",
}  # fmt: skip
AIME24 = {
    "id": 61, "problem": "Find the remainder of $1033$ modulo $1000$.", "solution": "It is $\\boxed{033}$.",
    "answer": "033", "url": "https://example.org/2024_AIME_I", "year": "2024",
}  # fmt: skip
GPQA = {
    "Record ID": "rec1", "High-level domain": "Physics", "Question": "Which particle has no charge?",
    "Correct Answer": "the neutron\n", "Incorrect Answer 1": "the proton", "Incorrect Answer 2": "the electron",
    "Incorrect Answer 3": "the muon",
}  # fmt: skip
PRO = {
    "question_id": 70, "question": "Which number is prime?", "answer": "I", "answer_index": 8, "category": "math",
    "options": ["4", "6", "8", "9", "10", "12", "14", "15", "17", "N/A"], "src": "own", "cot_content": "",
}  # fmt: skip
#: A suite in the form of EvalPlus: inputs, results, and a comparison that knows floats.
SUITE = """
import numpy as np

def is_floats(x):
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    return x.dtype == np.float64 if isinstance(x, np.ndarray) else isinstance(x, float)

def assertion(out, exp, atol):
    exact = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact and atol != 0:
        assert type(out) == type(exp)
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact

inputs, results = [[[1.0, 3.0]], [[0.1, 0.2]], [[-5]]], [2.0, 0.15, -5]
"""
LOOP = "for inp, exp in zip(inputs, results):\n    assertion({}(*inp), exp, 0)\n"
HUMANEVAL_PLUS = {
    "task_id": "HumanEval/163", "entry_point": "middle", "canonical_solution": "    return sum(xs) / len(xs)\n",
    "prompt": 'def middle(xs):\n    """The mean.\n\n    >>> middle([2.0])\n    2.0\n    """\n',
    "test": SUITE + "def check(candidate):\n    " + LOOP.format("candidate").replace("\n    ", "\n        "),
}  # fmt: skip
MBPP_PLUS = {
    "task_id": 888, "code": "def middle(xs):\n    return sum(xs) / len(xs)", "prompt": "Write a function for the mean.",
    "source_file": "own", "test_imports": [], "test_list": ["assert middle([2.0]) == 2.0"],
    "test": SUITE + LOOP.format("middle"),
}  # fmt: skip


def test_each_set_has_its_own_name_official_metric_and_form(tmp_path: Path) -> None:
    for name, record, metric, right, wrong in (
        ("math500", MATH500, "math", "So it is $\\boxed{9.5}$", "\\boxed{9}"),
        ("aime24", AIME24, "math", "33", "330"), ("aime25", {**AIME24, "year": 2025}, "math", "\\boxed{033}", "32"),
        ("mmlu_pro", PRO, "choice", "The answer is (I).", "The answer is (J)."),
        ("gpqa_diamond", GPQA, "choice", "the neutron", "the muon"),
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / f"{name}.jsonl", [record]))
        question, reference = problem.question, problem.reference
        assert (question.dataset, problem.benchmark, metric_of(question)) == (name, "", metric), name
        found = [next(iter(scores(metric_of(question), said, question, reference).values())) for said in (right, wrong)]
        assert found == [1, 0], name
        assert parse(to_record(problem)) == replace(problem, place="", benchmark=""), name
        assert DATASETS[name].source.official == {"test": "test"} and question.id.startswith(f"{name}/")


async def test_their_golds_are_judged_correct(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "all.jsonl", [MATH500, AIME24, GPQA, PRO])
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        report = await check_golds([file], None, sandbox)
    assert report.records == 4 and report.golds == 8 and not report.failures


def test_options_are_shown_without_empty_ones_and_gpqas_in_an_order_of_their_own(tmp_path: Path) -> None:
    shown = DATASETS["mmlu_pro"].parse(PRO).question.text
    assert shown.startswith("Which number is prime?\nA. 4\n") and shown.endswith("\nI. 17")
    gap = {**PRO, "options": ["4", "N/A", "17"], "answer": "C", "answer_index": 2}
    assert DATASETS["mmlu_pro"].parse(gap).reference.answers == ("B", "B. 17", "17")
    letters = {DATASETS["gpqa_diamond"].parse({**GPQA, "Question": f"{i}?"}).reference.answers[0] for i in range(40)}
    assert letters == {*"ABCD"}, "the right answer is the first of a record"
    swapped = {**GPQA, "Incorrect Answer 1": "the muon", "Incorrect Answer 3": "the proton"}
    assert DATASETS["gpqa_diamond"].parse(swapped) == DATASETS["gpqa_diamond"].parse(GPQA)
    header, row = (",".join(f'"{cell}"' for cell in cells) for cells in (GPQA, GPQA.values()))
    for name, row_name in (("gpqa_diamond.csv", ""), ("gpqa_main.csv", "gpqa_main")):
        (problem,) = read_problems(put(tmp_path / name, f"{header}\n{row}\n"))
        assert problem.benchmark == row_name


def test_records_that_contradict_themselves_are_refused() -> None:
    changes: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("aime24", AIME24, {"answer": "1033"}, "whole number from 0 to 999, got '1033'"),
        ("aime25", AIME24, {"answer": "x"}, "got 'x'"),
        ("mmlu_pro", PRO, {"answer": "A"}, "'answer' and 'answer_index' must name one of 10 options: 'A', 8"),
        ("mmlu_pro", PRO, {"answer_index": 10}, "10 options"), ("mmlu_pro", PRO, {"options": "4"}, "'options'"),
        ("gpqa_diamond", GPQA, {"Incorrect Answer 2": None}, "'Incorrect Answer 2'"),
    ]  # fmt: skip
    for name, record, change, reason in changes:
        with pytest.raises(DataError, match=reason):
            DATASETS[name].parse({**record, **change})


async def test_the_plus_sets_are_judged_by_their_own_suites_apart_from_the_solution(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "plus.jsonl", [HUMANEVAL_PLUS, MBPP_PLUS])
    problems = read_problems(file)
    assert [p.question.id for p in problems] == ["humaneval_plus/163", "mbpp_plus/888"]
    assert all(metric_of(p.question) == "pass@k" and p.benchmark == "" for p in problems)
    public = "def middle(xs):\n    return xs[0]"  # passes the public test alone
    near = "def middle(xs):\n    return sum(xs) / len(xs) + 1e-9 * (len(xs) > 1)"
    async with Sandbox(SandboxConfig()) as sandbox:
        assert not (await check_golds([file], None, sandbox)).failures
        for problem in problems:
            reference, name = problem.reference, problem.question.entry_point or ""
            for source, right in ((public, False), (near, True)):
                found = await sandbox.verdict(source, reference.tests, name, prelude=reference.prelude)
                assert (found.passed, found.mode, found.weak) == (right, "split", False)
    with pytest.raises(DataError, match="field 'test' must be"):
        DATASETS["mbpp_plus"].parse({**MBPP_PLUS, "test": None})
    mine = {**HUMANEVAL_PLUS, "task_id": "HumanEval/164"}
    assert read_problems(write_lines(tmp_path / "mine.jsonl", [mine]))[0].question.dataset == "humaneval"
