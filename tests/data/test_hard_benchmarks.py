"""Benchmarks where a strong executor still errs, on records written by hand in their published fields.

The published sets themselves are not part of the repository and are not run here.
"""

import base64
import json
import pickle
import random
import re
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers.samples import put, write_lines
from helpers.tables import tables

from llm_as_judge.answers.metrics import scores
from llm_as_judge.assembly.check import check_golds, prove_tests
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.catalog import DATASETS, metric_of
from llm_as_judge.data.download import download
from llm_as_judge.data.forms import parse, to_record
from llm_as_judge.data.problems import read_problems
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.public_test import first_failure

TABLES = tables(__file__)

MATH500 = TABLES["MATH500"]
AIME24 = TABLES["AIME24"]
GPQA = TABLES["GPQA"]
PRO = TABLES["PRO"]
#: A suite in the form of EvalPlus: inputs, results, and a comparison that knows floats.
SUITE = TABLES["SUITE"]
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


async def test_each_set_has_its_own_name_official_metric_and_form(tmp_path: Path) -> None:
    for name, record, metric, right, wrong in (
        ("math500", MATH500, "math", "So it is $\\boxed{9.5}$", "\\boxed{9}"), ("aime24", AIME24, "math", "33", "330"),
        ("aime25", {**AIME24, "year": 2025}, "math", "\\boxed{033}", "32"),
        ("mmlu_pro", PRO, "choice", "The answer is (I).", "The answer is (J)."),
        ("gpqa_diamond", GPQA, "choice", "the neutron", "the muon"),
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / f"{name}.jsonl", [record]))
        question, reference = problem.question, problem.reference
        assert (question.dataset, problem.benchmark, metric_of(question)) == (name, "", metric), name
        if metric != "math" or find_spec("math_verify"):  # an extra
            found = [scores(metric_of(question), said, question, reference) for said in (right, wrong)]
            assert [next(iter(one.values())) for one in found] == [1, 0], name
        assert parse(to_record(problem)) == problem and question.id.startswith(f"{name}/"), name
        assert DATASETS[name].source.official == {"test": "test"}
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        report = await check_golds([tmp_path], None, sandbox)
    assert report.golds == 9 and not report.failures
    download(tmp_path / "raw", ["aime25"], fetch=lambda *_: [{"problem": "1 + 1?", "answer": "2", "id": "0"}])
    assert read_problems(tmp_path / "raw")[0].question.dataset == "aime25", (
        "its hub's records do not say whose they are"
    )


def test_options_are_shown_without_empty_ones_and_gpqas_in_an_order_of_their_own(tmp_path: Path) -> None:
    shown = DATASETS["mmlu_pro"].parse(PRO).question.text
    assert shown.startswith("Which number is prime?\nA. 4\n") and shown.endswith("\nI. 17")
    gap = {**PRO, "options": ["4", "N/A", "17"], "answer": "C", "answer_index": 2}
    assert DATASETS["mmlu_pro"].parse(gap).reference.answers == ("B", "B. 17", "17")
    gpqa = DATASETS["gpqa_diamond"].parse
    letters = {gpqa({**GPQA, "Question": f"{i}?"}).reference.answers[0] for i in range(40)}
    assert letters == {*"ABCD"}, "the right answer is the first of a record"
    assert gpqa({**GPQA, "Incorrect Answer 1": "the muon", "Incorrect Answer 3": "the proton"}) == gpqa(GPQA)
    header, row = (",".join(f'"{cell}"' for cell in cells) for cells in (GPQA, GPQA.values()))
    for name, benchmark in (("gpqa_diamond.csv", ""), ("gpqa_main.csv", "gpqa_main")):
        (problem,) = read_problems(put(tmp_path / name, f"{header}\n{row}\n"))
        assert problem.benchmark == benchmark


async def test_the_plus_sets_are_judged_by_their_own_suites_apart_from_the_solution(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "plus.jsonl", [HUMANEVAL_PLUS, MBPP_PLUS])
    problems = read_problems(file)
    assert [p.question.id for p in problems] == ["humaneval_plus/163", "mbpp_plus/888"]
    assert all(metric_of(p.question) == "pass@k" and p.benchmark == "" for p in problems)
    public = "def middle(xs):\n    return xs[0]"  # passes the public test alone
    near = "def middle(xs):\n    return sum(xs) / len(xs) + 1e-9 * (len(xs) > 1)"
    lacks = {**MBPP_PLUS, "task_id": 889, "test": f"import scipy.stats\n{MBPP_PLUS['test']}"}
    async with Sandbox(SandboxConfig()) as sandbox:
        more = [HUMANEVAL_PLUS, {**MBPP_PLUS, "code": public}, lacks]
        report = await check_golds([write_lines(tmp_path / "more.jsonl", more)], None, sandbox)
        assert not (await check_golds([file], None, sandbox)).failures
        assert [f.id.rpartition("/")[2] for f in report.failures] == ["more.jsonl:3", "888"]
        assert "No module named 'scipy'" in report.failures[0].reason
        for problem, (source, right) in ((p, case) for p in problems for case in ((public, False), (near, True))):
            name, reference = problem.question.entry_point or "", problem.reference
            found = await sandbox.verdict(source, reference.tests, name, prelude=problem.question.prelude)
            assert (found.passed, found.mode, found.weak) == (right, "split", False)
    mine = {**HUMANEVAL_PLUS, "task_id": "HumanEval/164"}
    assert read_problems(write_lines(tmp_path / "mine.jsonl", [mine]))[0].question.dataset == "humaneval"


def apps(inputs: list[Any], outputs: list[Any], name: str | None = None, **more: Any) -> dict[str, Any]:
    pairs = {"inputs": inputs, "outputs": outputs, **({"fn_name": name} if name else {})}
    common = {"problem_id": 5, "question": "Add.", "solutions": "", "difficulty": "x", "url": "", "starter_code": ""}
    return {**common, "input_output": json.dumps(pairs), **more}


def livecodebench(cases: list[tuple[str, str]], public: int = 1, **more: Any) -> dict[str, Any]:
    listed = [{"input": given, "output": wanted, "testtype": "stdin"} for given, wanted in cases]
    pickled = zlib.compress(pickle.dumps(json.dumps(listed[public:])))
    return {
        "question_title": "Sum", "question_content": "Add.", "platform": "atcoder", "question_id": "abc_a",
        "contest_id": "abc", "contest_date": "2025-01-04T00:00:00", "starter_code": "", "difficulty": "easy",
        "public_test_cases": json.dumps(listed[:public]), "private_test_cases": base64.b64encode(pickled).decode(),
        "metadata": "{}", **more,
    }  # fmt: skip


async def passes(record: dict[str, Any], *solutions: str) -> list[bool]:
    """Whether each solution passes the hidden tests, which must run apart from it."""
    problem = DATASETS["apps" if "input_output" in record else "livecodebench"].parse(record)
    name, reference = problem.question.entry_point or "", problem.reference
    async with Sandbox(SandboxConfig()) as sandbox:
        await prove_tests(sandbox, reference.tests, name, problem.question.prelude)
        found = [await sandbox.verdict(s, reference.tests, name, prelude=problem.question.prelude) for s in solutions]
    assert all(v.mode == "split" and not v.weak and v.outcome in ("finished", "raised") for v in found), found
    return [v.passed for v in found]


SUM = "print(sum(map(int, input().split())))"


async def test_programs_are_judged_by_all_their_pairs_and_only_public_ones_are_seen(tmp_path: Path) -> None:
    text = "Add.\n\n-----Examples-----\nInput\n1 2\n\nOutput\n3\n\n-----Note-----\nIt is 5 for 2 3, not 6."
    of_apps = apps(["1 2\n", "2 3\n", ["7 8"]], ["3\n", "5\n", ["15"]], question=text)
    of_lcb = livecodebench([("1 2\n", "3"), ("2 3\n", "5\n"), ("7 8\n", "15\n")])
    plain = {**of_lcb, "private_test_cases": json.dumps([{"input": "7 8", "output": "15"}])}
    long = random.Random(1).randbytes(1_000_000).hex()  # its tests are longer than a source may be
    assert await passes(livecodebench([("1", "1"), (f"{long}", f"{len(long)}")]), "print(len(input()))") == [True]
    for record in (of_apps, of_lcb, plain):
        assert await passes(record, SUM, "print({'1 2': 3}[input()])", "input()\nprint(15)") == [True, False, False]
        (problem,) = read_problems(write_lines(tmp_path / "x.jsonl", [record]))
        question = problem.question
        assert question.public_tests == ("assert __main__('1 2\\n') == '3'",), "the note is no example"
        assert "standard input" in question.text and "15" not in repr(question) and question.entry_point == "__main__"
        assert metric_of(question) == "pass@k" and problem.benchmark == "" and parse(to_record(problem)) == problem


async def test_outputs_are_compared_as_the_official_scorers_do() -> None:
    for wanted, said, by_apps, by_lcb in TABLES["outputs"]:
        program = f"input()\nprint({said!r})"
        assert await passes(apps(["x"], [wanted]), program) == [by_apps], (wanted, said)
        assert await passes(livecodebench([("x", wanted)], public=0), program) == [by_lcb], (wanted, said)


async def test_methods_of_class_solution_are_called_with_values() -> None:
    starter = "class Solution:\n    def largest(self, xs: List[int], least: int) -> List[int]:\n        "
    right = starter + "return sorted(x for x in xs if x > least)"
    plain = "def largest(xs, least):\n    return tuple(sorted(x for x in xs if x > least))"
    wrong = (right.replace("> least", ">= least"), right.replace("largest", "other"), right.replace("return", "print"))
    cases: list[tuple[list[int], int, list[int]]] = [([3, 1, 2], 1, [2, 3]), ([], 0, []), ([5], 5, [])]
    listed = [("\n".join(map(json.dumps, case[:2])), json.dumps(case[2])) for case in cases]
    of_lcb = livecodebench(listed, metadata='{"func_name": "largest"}', starter_code=starter)
    of_apps = apps([[*c[:2]] for c in cases], [[c[2]] for c in cases], "largest", starter_code=starter)
    for record, test in (
        (of_lcb, "largest([3, 1, 2], 1) == [2, 3]"),
        (of_apps, "callable(largest)"),
    ):
        assert await passes(record, right, plain, *wrong) == [True, True, False, False, False]
        question = DATASETS["livecodebench" if record is of_lcb else "apps"].parse(record).question
        assert question.public_tests == (f"assert {test}",) and question.entry_point == "largest"
        assert starter.strip() in question.text
        async with Sandbox(SandboxConfig()) as sandbox:
            alone = [await first_failure(sandbox.run_code, question, s) for s in (right, plain.replace("tuple", ""))]
            assert alone == [None, None], "public tests run as the hidden ones: List is imported, a method is found"
            assert await first_failure(sandbox.run_code, question, wrong[1]), "no such method"
    deep = f"{starter}return self.largest(xs, least - 1) if least > 9 else [deque(range(3)).pop(), *map(int, '3')]"
    far = livecodebench([("[]\n9000", "[2, 3]")] * 2, metadata='{"func_name": "largest"}', starter_code=starter)
    assert await passes(far, deep) == [True], "recursion as deep as the official scorers allow"
    flip = "def flip(d):\n    return {y: x for x, y in d.items()}"
    assert await passes(apps([[{"1": 2}]], [{"2": 1}], "flip"), flip) == [True]


async def test_apps_golds_are_judged_and_pickles_only_ever_run_in_the_sandbox(tmp_path: Path) -> None:
    gold = apps(["1 2"], ["3"], solutions=json.dumps([SUM]))
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


async def test_what_is_wrong_with_private_tests_is_never_the_solutions_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ALL_TESTS", 1)
    async with Sandbox(SandboxConfig(cpu_seconds=1)) as sandbox:
        for content, error in (
            (pickle.dumps('[{"input": "1", "output": "1"}, {"input": "2"}]'), "KeyError: 'output'"),
            (pickle.dumps('[{"input": "1", "output": "1"}, {"input": "2", "output": 2}]'), "AttributeError"),
            (pickle.dumps("3"), "TypeError"), (b"cbuiltins\nexec\n(S'while 1: pass'\ntR.", "1 s of CPU time; raise"),
        ):  # fmt: skip
            private = base64.b64encode(zlib.compress(content)).decode()
            problem = DATASETS["livecodebench"].parse(livecodebench([("1", "1")], private_test_cases=private))
            try:
                found = await sandbox.verdict("print(input())", problem.reference.tests, "__main__")
                assert found.outcome == "fault", found
                faults = found.error
            except DataError as fault:
                faults = str(fault)
            assert "before they call '__main__'" in faults and error in faults


async def test_names_numbers_and_ids_of_any_kind_are_those_of_the_record() -> None:
    check = "def check(x):\n    return x"
    assert await passes(apps([[1], [2]], [[1], [2]], "check"), check, check + " + 1") == [True, False]
    assert await passes(livecodebench([("9", "9" * 9000)]), "print('9' * 9000 if int('9' * 9000) else 0)") == [True]
    assert await passes(apps(["1"], ["inf"]), "print(5)", "print('inf')") == [False, True]
    ids = [DATASETS["apps"].parse(apps(["1"], ["2"], problem_id=given)).question.id for given in (0, None)]
    assert ids[0] == "apps/0" and re.fullmatch("apps/[0-9a-f]{12}", ids[1])


def test_records_that_contradict_themselves_or_have_no_tests_are_refused() -> None:
    lcb = livecodebench([("1 x", "x")])
    for name, record, change, reason in (
        ("math500", MATH500, {"answer": "", "solution": "?"}, "no field 'answer'"),
        ("mmlu_pro", PRO, {"answer": "A"}, "must name one of 10 options, at most 10: 'A', 8"),
        ("mmlu_pro", PRO, {"answer_index": 10}, "10 options"), ("mmlu_pro", PRO, {"options": "4"}, "'options'"),
        ("gpqa_diamond", GPQA, {"Incorrect Answer 2": None}, "'Incorrect Answer 2'"),
        ("apps", apps([], []), {"input_output": "["}, "'input_output' must be JSON of a dict"),
        ("apps", apps([], []), {"input_output": '{"outputs": []}'}, "'inputs' must be"),
        ("apps", apps([], []), {}, "0 inputs and 0 outputs"), ("apps", apps(["1"], []), {}, "1 inputs and 0 outputs"),
        ("apps", apps(["1"], [2]), {}, "'input' and 'output' as text"),
        ("apps", apps([[1]], [2], "a b"), {}, "name of a function, got 'a b'"),
        ("livecodebench", lcb, {"private_test_cases": '"); import os'}, "'private_test_cases' must be JSON of a list"),
        ("livecodebench", lcb, {"private_test_cases": None}, "'private_test_cases'"),
        ("livecodebench", lcb, {"public_test_cases": '[{"input": 1}]'}, "as text"),
        ("livecodebench", lcb, {"metadata": '{"func_name": "f"}'}, "a test of 'f' must be JSON, got .*1 x"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=reason):
            DATASETS[name].parse({**record, **change})


async def test_undecidable_records_are_left_out_with_a_warning_unless_all_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    untested = [apps([], [], question="Two?") | {"input_output": x} for x in ("", "{}")]
    proofs = [{"problem": f"Prove {x}.", "solution": "Clear."} for x in "ab"]
    number = {"problem": "One?", "solution": "So \\boxed{1}."}
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        for first, others in ((apps(["1"], ["2"], question="One?"), untested), (number, proofs)):
            caplog.clear()
            file = write_lines(tmp_path / "some.jsonl", [first, *others])
            assert [problem.question.text[:4] for problem in read_problems(file)] == ["One?"]
            assert not (await check_golds([file], None, sandbox)).failures
            said = "2 records that nothing can decide are left out, the first"
            assert caplog.text.count(said) == caplog.text.count("some.jsonl:2: ") == 2
            with pytest.raises(DataError, match=r"all.jsonl:1: .*(input_output|boxed)"):
                read_problems(write_lines(tmp_path / "all.jsonl", others))
            assert len((await check_golds([tmp_path / "all.jsonl"], None, sandbox)).failures) == 2
        plus = {"task_id": "Mbpp/2", "prompt": "Double.", "entry_point": "f", "base_input": [[1]], "plus_input": [[2]]}
        file = write_lines(tmp_path / "plus.jsonl", [plus])
        assert "'plus_input' holds" in str((await check_golds([file], None, sandbox)).failures), "runs refuse it too"
