"""Every benchmark's records are parsed, in the hub's and the release's shape, with their known irregularities.

Every reference answer is judged correct by the project's own judge.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import benchmark
from helpers.samples import hub_record, write_lines
from helpers.tables import tables

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.assembly.check import GoldReport, check_golds
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data import forms
from llm_as_judge.data.benchmarks import choices, humaneval, math, mbpp, squad2
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.problems import read_problems
from llm_as_judge.data.reading import files_in, read
from llm_as_judge.errors import DataError
from llm_as_judge.judging.judge import Judge
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Problem, Verdict

TABLES = tables(__file__)

#: Dataset, file, least number of published records and golds, number of invented records and golds.
FILES = TABLES["FILES"]


def records(path: Path) -> list[Any]:
    return [record for file in files_in(path) for _, record in read(file)]


def test_every_record_parses_and_survives_the_projects_own_format(sample: Callable[[str], Path]) -> None:
    for dataset, name, *_ in FILES:
        problems = read_problems(sample(name))
        if dataset != "hotpotqa":  # two of its files have the same problems in two shapes
            assert len({problem.question.id for problem in problems}) == len(problems), name
        for problem in problems:
            question, reference = problem.question, problem.reference
            assert question.dataset == dataset and question.domain == DATASETS[dataset].domain
            assert question.text.strip()
            if question.domain == "code":
                assert reference.tests and question.entry_point and not reference.answers
                assert reference.tests not in repr(question)
            else:
                assert bool(reference.answers) != reference.unanswerable
            assert forms.parse(json.loads(json.dumps(forms.to_record(problem)))) == problem


def test_the_hubs_shape_and_the_release_give_the_same_problems(samples: Path, tmp_path: Path) -> None:
    for dataset, name in (
        ("squad2", "squad_v2/train-v2.0.json"), ("hotpotqa", "hotpotqa/hotpot_train_v1.1.json"),
        ("mmlu", "mmlu/test"), ("commonsenseqa", "commonsenseqa/train_rand_split.jsonl"),
    ):  # fmt: skip
        found = (hub_record(dataset, record) for record in records(samples / name))
        hub = write_lines(tmp_path / f"{dataset}.jsonl", found)
        assert read_problems(hub) == read_problems(samples / name), dataset


def test_gsm8k_math_and_squad_take_their_answers() -> None:
    for written, answer in {"1,234": "1234", "-5": "-5", "$1,000": "1000", "3.50": "3.50"}.items():
        problem = math.parse_gsm8k({"question": "q", "answer": f"12 #### x\r\n#### {written}\r\n"})
        assert problem.reference.answers == (answer,)
    solution = r"Guess \boxed{1}. Then $x=\boxed{\frac{1}{2}}$."
    assert math.parse({"problem": "p", "solution": solution}).reference.answers == (r"\frac{1}{2}",)
    shape = {"question": " q ", "context": "c", "id": "1", "plausible_answers": [{"text": "wrong"}]}
    none = squad2.parse({**shape, "answers": [], "is_impossible": True})
    assert none.reference.unanswerable and not none.reference.answers
    assert squad2.DATASET.golds({**shape, "answers": []}) == ("unanswerable",)
    nested = squad2.parse({**shape, "answers": [{"text": "a"}, {"text": "b "}, {"text": "a"}], "is_impossible": False})
    assert nested.reference.answers == ("a", "b")
    for wrong in ({"answers": None}, {"answers": [1]}, {"answers": ["a"], "is_impossible": "no"}, {"answers": [""]}):
        with pytest.raises(DataError):
            squad2.parse({**shape, **wrong})


def test_mbpp_shows_its_first_assert_hides_all_and_names_its_function(samples: Path) -> None:
    task = {
        "task_id": 700, "text": "t", "code": "def g(x): ...\ndef f(x): ...",
        "test_list": ["assert f(1) == 2\r\n", "assert f(2) == 3"], "challenge_test_list": ["assert f(3) == 4"],
        "test_setup_code": "x = 1\r\ny = 2", "test_imports": ["import re"],
    }  # fmt: skip
    problem = mbpp.parse(task)
    assert problem.question.public_tests == ("assert f(1) == 2",) and problem.question.entry_point == "f"
    assert problem.reference.tests == "x = 1\ny = 2\nassert f(1) == 2\nassert f(2) == 3\nassert f(3) == 4"
    assert problem.question.prelude == "import math\nimport re"
    assert "f(2)" not in repr(problem.question) and "f(3)" not in repr(problem.question)
    changes: tuple[dict[str, Any], ...] = (
        {"task_id": "x"}, {"task_id": None}, {"test_list": []}, {"test_list": "assert f(1)"}, {"test_setup_code": 1},
        {"challenge_test_list": [1]}, {"test_imports": "import re"}, {"code": 3}, {"test_list": ["assert ("]},
    )  # fmt: skip
    for change in changes:
        with pytest.raises(DataError):
            mbpp.parse({**task, **change})
    problems = {p.question.id: p for p in read_problems(samples / "mbpp/mbpp.jsonl")}
    setup = problems["mbpp/602"]  # its setup uses a class of the solution
    assert setup.reference.tests.startswith("root = Node(1)") and "Node" not in setup.question.prelude
    assert [mbpp.split_of({"task_id": n}) for n in (9, 11, 511, 601)] == ["prompt", "test", "validation", "train"]
    assert "\r" not in repr(problems) + DATASETS["mbpp"].golds(records(samples / "mbpp/mbpp.jsonl")[0])[0]


def test_humaneval_examples_are_read_in_every_notation() -> None:
    docstring = TABLES["notations"]
    prompt = f'def f(x):\n    """{docstring}"""\n'
    check = "def check(candidate):\n    assert candidate(1) == 2\n"
    problem = humaneval.parse({"task_id": "HumanEval/999", "prompt": prompt, "entry_point": "f", "test": check})
    assert problem.question.public_tests == (
        "assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4", "assert f('a, (b') == [1, 2]",
        "assert f(5) == 6", "assert f(6) == True", "assert f(7) == 'x'",
    )  # fmt: skip


def test_choices_are_in_the_text_and_letter_or_text_is_right(samples: Path) -> None:
    problem = read_problems(samples / "commonsenseqa/train_rand_split.jsonl")[1]
    assert "\nA. volcano\nB. shop" in problem.question.text
    right = {answer: matches(answer, problem.reference.answers, "qa") for answer in ("B", "(B)", "shop", "B. shop")}
    wrong = {answer: matches(answer, problem.reference.answers, "qa") for answer in ("A", "volcano", "A. volcano")}
    assert all(right.values()) and not any(wrong.values())
    record = choices.from_row(["q", "a", "b", "c", "d", "C"])
    assert choices.parse(record) == choices.parse({**record, "answer": 2})
    assert DATASETS["mmlu"].golds(record)[0] == "C"


# The project's own judge


async def check(path: Path, dataset: Dataset) -> GoldReport:
    async with Sandbox(SandboxConfig(cpu_seconds=20, wall_seconds=120)) as sandbox:
        return await check_golds([path], dataset, sandbox)


#: Problems whose solutions return objects of their own classes, so that their tests cannot be split from them.
WEAK = {"mbpp/mbpp.jsonl": {"mbpp/367", "mbpp/601", "mbpp/927"}}


@pytest.mark.slow
async def test_every_published_gold_is_judged_correct_and_only_few_weakly(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, weak = Judge.verdict, set[str]()

    async def noted(self: Judge, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        verdict = await judged(self, problem, answer, cut_off)
        weak.update([problem.question.id] if "(weak: " in verdict.reason else [])
        return verdict

    monkeypatch.setattr(Judge, "verdict", noted)
    for name, file, records, golds, _, _ in FILES:
        weak.clear()
        report = await check(benchmark(file), DATASETS[name])
        assert weak == WEAK.get(file, set()), file
        assert report.records >= records and report.golds >= golds, file  # a whole benchmark has more than the samples
        assert not report.failures, file


async def test_every_invented_gold_is_judged_correct(samples: Path) -> None:
    found = [(name, file, await check(samples / file, DATASETS[name])) for name, file, *_ in FILES]
    assert found == [(name, file, GoldReport(records, golds, ())) for name, file, _, _, records, golds in FILES]


async def test_an_empty_file_is_a_fault(tmp_path: Path) -> None:
    for name, text in (("rows.csv", ""), ("lines.jsonl", ""), ("document.json", "[]")):
        (tmp_path / name).write_text(text)
        (failure,) = (await check(tmp_path / name, DATASETS["gsm8k"])).failures
        assert failure.reason == "no records" and failure.id.endswith(name)


async def test_a_wrong_gold_a_wrong_public_test_and_a_bad_record_are_found(tmp_path: Path) -> None:
    good = {
        "task_id": 700, "text": "Add.", "code": "def add(a, b):\r\n    return a + b\r\n",
        "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
    }  # fmt: skip
    records = [good, {**good, "task_id": 701, "code": "def add(a, b):\n    return a - b"}, {**good, "test_list": []}]
    path = write_lines(tmp_path / "mbpp.jsonl", records)
    report = await check(path, DATASETS["mbpp"])
    assert report.records == 3
    found = [(failure.id, failure.reason) for failure in report.failures]
    assert found[0] == (f"{path}:3", "field 'test_list' is empty")
    assert [id_ for id_, _ in found[1:]] == ["mbpp/701"] * 2
    assert any(reason.startswith("tests failed") for _, reason in found)
    assert any(reason.startswith("public test assert add(1, 2) == 3") for _, reason in found)
