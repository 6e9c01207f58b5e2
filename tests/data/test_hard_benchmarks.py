"""Benchmarks where a strong executor still errs, on records written by hand in their published fields.

The published sets themselves are not part of the repository and are not run here.
"""

import base64
import json
import pickle
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.samples import put, write_lines

from llm_as_judge.answers.metrics import scores
from llm_as_judge.assembly.check import check_golds, prove_tests
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
        ("math500", MATH500, {"answer": "", "solution": "?"}, "no field 'answer'"),
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
    mine = {**HUMANEVAL_PLUS, "task_id": "HumanEval/164"}
    assert read_problems(write_lines(tmp_path / "mine.jsonl", [mine]))[0].question.dataset == "humaneval"


def apps(pairs: dict[str, list[Any]], **more: Any) -> dict[str, Any]:
    return {
        "problem_id": 5, "question": "Add the numbers.", "solutions": "", "input_output": json.dumps(pairs),
        "difficulty": "introductory", "url": "", "starter_code": "", **more,
    }  # fmt: skip


def livecodebench(cases: list[tuple[str, str]], public: int = 1, **more: Any) -> dict[str, Any]:
    listed = [{"input": given, "output": wanted, "testtype": "stdin"} for given, wanted in cases]
    pickled = zlib.compress(pickle.dumps(json.dumps(listed[public:])))
    return {
        "question_title": "Sum", "question_content": "Add the numbers.", "platform": "atcoder", "question_id": "abc_a",
        "contest_id": "abc", "contest_date": "2025-01-04T00:00:00", "starter_code": "", "difficulty": "easy",
        "public_test_cases": json.dumps(listed[:public]), "private_test_cases": base64.b64encode(pickled).decode(),
        "metadata": "{}", **more,
    }  # fmt: skip


SUM = "print(sum(map(int, input().split())))"
STARTER = "class Solution:\n    def largest(self, xs: List[int], least: int) -> List[int]:\n        "
LARGEST = STARTER + "return sorted(x for x in xs if x > least)"


async def passes(record: dict[str, Any], *solutions: str) -> list[bool]:
    """Whether each solution passes the hidden tests, which must run apart from it."""
    problem = next(d for d in (DATASETS["apps"], DATASETS["livecodebench"]) if d.recognises(record)).parse(record)
    name, reference = problem.question.entry_point or "", problem.reference
    async with Sandbox(SandboxConfig()) as sandbox:
        await prove_tests(sandbox, reference.tests, name, reference.prelude)
        found = [await sandbox.verdict(s, reference.tests, name, prelude=reference.prelude) for s in solutions]
    assert all(v.mode == "split" and not v.weak and v.outcome in ("finished", "raised") for v in found), found
    return [v.passed for v in found]


async def test_programs_of_contests_are_judged_by_all_their_pairs_and_see_only_the_public_ones(tmp_path: Path) -> None:
    text = "Add.\n\n-----Examples-----\nInput\n1 2\n\nOutput\n3\n\n-----Note-----\nIt is 5 for 2 3, not 6."
    of_apps = apps({"inputs": ["1 2\n", "2 3\n", ["7 8"]], "outputs": ["3\n", "5\n", ["15"]]}, question=text)
    of_lcb = livecodebench([("1 2\n", "3"), ("2 3\n", "5\n"), ("7 8\n", "15\n")])
    plain = {**of_lcb, "private_test_cases": json.dumps([{"input": "7 8", "output": "15"}])}
    known = "print({'1 2': 3}.get(input().strip()))"
    for record in (of_apps, of_lcb, plain):
        assert await passes(record, SUM, known, "input()\nprint(15)") == [True, False, False]
        (problem,) = read_problems(write_lines(tmp_path / "x.jsonl", [record]))
        question = problem.question
        assert question.public_tests == ("assert __main__('1 2\\n') == '3'",), "the note is no example"
        assert "standard input" in question.text and "15" not in repr(question) and question.entry_point == "__main__"
        assert metric_of(question) == "pass@k" and problem.benchmark == ""
        assert parse(to_record(problem)) == replace(problem, place="")


async def test_outputs_are_compared_as_the_official_scorers_do() -> None:
    for wanted, said, by_apps, by_lcb in (
        ("1 2\n3\n", " 1 2 \n3", True, True), ("1\n2", "1 2", False, False), ("a b", "a  b", True, False),
        ("1\n2", "1\n\n2", True, False), ("0.5", "0.50", True, True), ("0.5", "0.500001", True, False),
        ("100000", "100001", True, False), ("0.5", "0.51", False, False), ("yes 1.0", "yes 1", True, False),
        ("Yes", "yes", False, False), ("1 2", "2 1", False, False), ("1", "1 1", False, False), ("1", "", False, False),
    ):  # fmt: skip
        program = f"input()\nprint({said!r})"
        found = [await passes(record, program) for record in (
            apps({"inputs": ["x"], "outputs": [wanted]}), livecodebench([("x", wanted)], public=0)
        )]  # fmt: skip
        assert found == [[by_apps], [by_lcb]], (wanted, said)


async def test_methods_of_class_solution_are_called_with_values() -> None:
    solutions = (
        LARGEST, "def largest(xs, least):\n    return tuple(sorted(x for x in xs if x > least))",
        LARGEST.replace(">", ">="), LARGEST.replace("largest", "other"), LARGEST.replace("return", "print"),
    )  # fmt: skip
    cases, fields = [([3, 1, 2], 1, [2, 3]), ([], 0, []), ([5], 5, [])], {"starter_code": STARTER}
    listed = [("\n".join(map(json.dumps, case[:2])), json.dumps(case[2])) for case in cases]
    of_lcb = livecodebench(listed, metadata='{"func_name": "largest"}', **fields)
    pairs = {"fn_name": "largest", "inputs": [[*case[:2]] for case in cases], "outputs": [[case[2]] for case in cases]}
    of_apps = apps(pairs, **fields)
    for record in (of_lcb, of_apps):
        assert await passes(record, *solutions) == [True, True, False, False, False]
    questions = [DATASETS["livecodebench"].parse(of_lcb).question, DATASETS["apps"].parse(of_apps).question]
    assert questions[0].public_tests == ("assert Solution().largest([3, 1, 2], 1) == [2, 3]",)
    assert questions[1].public_tests == ("assert callable(Solution().largest)",)
    assert all(q.entry_point == "largest" and STARTER.strip() in q.text for q in questions)
    counts = apps({"fn_name": "flip", "inputs": [[{"1": 2}]], "outputs": [{"2": 1}]}, starter_code="def flip(d):")
    assert await passes(counts, "def flip(d):\n    return {y: x for x, y in d.items()}") == [True]


async def test_apps_golds_are_judged_and_pickles_only_ever_run_in_the_sandbox(tmp_path: Path) -> None:
    gold = apps({"inputs": ["1 2"], "outputs": ["3"]}, solutions=json.dumps([SUM]))
    bad = {**gold, "problem_id": 6, "solutions": json.dumps(["print(4)"])}
    marker = tmp_path / "touched"

    class Evil:
        def __reduce__(self) -> Any:
            return (open, (str(marker), "w"))

    pickled = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    evil = livecodebench([("1 2", "3")], private_test_cases=pickled)
    async with Sandbox(SandboxConfig()) as sandbox:
        report = await check_golds([write_lines(tmp_path / "all.jsonl", [gold, bad, evil])], None, sandbox)
    assert not marker.exists() and report.golds == 2
    assert [f.id.rpartition("/")[2] for f in report.failures] == ["all.jsonl:3", "6"]
    assert "the tests fail before they call '__main__'" in report.failures[0].reason


def test_contest_records_without_usable_tests_are_refused() -> None:
    for change, reason in (
        ({"input_output": ""}, "'input_output' must be JSON of a dict"), ({"input_output": "{}"}, "'inputs' must be"),
        ({"input_output": '{"inputs": [], "outputs": []}'}, "0 inputs and 0 outputs"),
        ({"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs and 0 outputs"),
        ({"input_output": '{"inputs": ["1"], "outputs": [2]}'}, "'input' and 'output' as text"),
        ({"input_output": '{"fn_name": "a b", "inputs": [[1]], "outputs": [2]}'}, "name of a function, got 'a b'"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=reason):
            DATASETS["apps"].parse(apps({}, **change))
    for change, reason in (
        ({"private_test_cases": '"); import os'}, "'private_test_cases' must be JSON of a list"),
        ({"private_test_cases": None}, "'private_test_cases'"), ({"public_test_cases": '[{"input": 1}]'}, "as text"),
        ({"metadata": ""}, "'metadata'"), ({"metadata": '{"func_name": "f"}'}, "'input' must be JSON"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=reason):
            DATASETS["livecodebench"].parse(livecodebench([("1 x", "x")], **change))
