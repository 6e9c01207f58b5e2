"""What each benchmark's records do that a naive reader gets wrong; hub shape and release shape agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import benchmark
from hypothesis import given
from hypothesis import strategies as st

from llm_as_judge.data.benchmarks import commonsenseqa, custom, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.load import load_file
from llm_as_judge.data.reading import files_in, read
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem


def records(path: Path) -> list[Any]:
    return [raw.record for file in files_in(path) for raw in read(file)]


CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"


def mbpp_task(**changes: Any) -> dict[str, Any]:
    return {"task_id": 700, "text": "t", "code": "def f(x): ...", "test_list": ["assert f(1) == 2"], **changes}


def test_gsm8k_commas_money_and_signs(sample: Callable[[str], Path]) -> None:
    for told, answer in {"1,234": "1234", "-5": "-5", "$1,000": "1000", "3.50": "3.50"}.items():
        problem = gsm8k.parse({"question": "q", "answer": f"12 #### x\r\n#### {told}\r\n"})
        assert problem.reference.answers == (answer,)
    told_with_commas = [record for record in records(sample("gsm8k")) if "," in record["answer"].rpartition("####")[2]]
    assert told_with_commas
    assert not any("," in gsm8k.parse(record).reference.answers[0] for record in told_with_commas)


def test_math_takes_the_last_of_several_boxes(sample: Callable[[str], Path]) -> None:
    solution = r"Guess \boxed{1}. Then $x=\boxed{\frac{1}{2}}$."
    assert math.parse({"problem": "p", "solution": solution}).reference.answers == (r"\frac{1}{2}",)
    several = [record for record in records(sample("math")) if record["solution"].count(r"\boxed") > 1]
    assert several and all(math.parse(record).reference.answers[0] in record["solution"] for record in several)


def test_squad_takes_every_annotator_and_no_plausible_answer() -> None:
    shape = {"question": " q ", "context": "c", "id": "1", "plausible_answers": [{"text": "wrong"}]}
    none = squad2.parse({**shape, "answers": [], "is_impossible": True})
    assert none.reference.unanswerable and not none.reference.answers
    assert squad2.golds({**shape, "answers": []}) == ("unanswerable",)
    nested = squad2.parse({**shape, "answers": [{"text": "a"}, {"text": "b "}, {"text": "a"}], "is_impossible": False})
    assert nested.reference.answers == ("a", "b")
    assert nested == squad2.parse({**shape, "answers": {"text": ["a", "b", "a"], "answer_start": [0, 1, 0]}})
    for wrong in ({"answers": None}, {"answers": [1]}, {"answers": ["a"], "is_impossible": "no"}, {"answers": [""]}):
        with pytest.raises(DataError):
            squad2.parse({**shape, **wrong})


def test_hotpot_keeps_all_paragraphs_in_both_shapes(sample: Callable[[str], Path]) -> None:
    hub = [hotpotqa.parse(r) for r in records(sample("hotpotqa/hf_columns_dev_distractor.json"))]
    assert hub and all(p.question.context and p.question.id.startswith("hotpotqa/") for p in hub)
    short = [r for r in records(sample("hotpotqa/hotpot_train_v1.1.json")) if len(r["context"]) < 10]
    assert short and all(hotpotqa.parse(r).question.context.count("\n") == len(r["context"]) - 1 for r in short)
    for r in records(sample("hotpotqa/hotpot_train_v1.1.json")):
        columns = {"title": [t for t, _ in r["context"]], "sentences": [s for _, s in r["context"]]}
        assert hotpotqa.parse({**r, "context": columns}) == hotpotqa.parse(r)


def test_mbpp_entry_points_come_from_the_tests(sample: Callable[[str], Path]) -> None:
    for record in records(sample("mbpp/mbpp.jsonl")):
        assert f"def {mbpp.parse(record).question.entry_point}(" in record["code"].replace(" (", "(")
    inner = mbpp_task(code="def g(x): ...\ndef f(x): ...", test_list=["assert set(f([1])) == {1}"])
    assert mbpp.parse(inner).question.entry_point == "f"


def test_mbpp_shows_its_first_assert_only_and_hides_all() -> None:
    task = mbpp_task(
        test_list=["assert f(1) == 2\r\n", "assert f(2) == 3"], challenge_test_list=["assert f(3) == 4"],
        test_setup_code="x = 1\r\ny = 2", test_imports=["import re"],
    )  # fmt: skip
    problem = mbpp.parse(task)
    assert problem.question.public_tests == ("assert f(1) == 2",)
    assert problem.reference.tests == "x = 1\ny = 2\nassert f(1) == 2\nassert f(2) == 3\nassert f(3) == 4"
    assert problem.reference.prelude == "import math\nimport re"
    assert "f(2)" not in repr(problem.question) and "f(3)" not in repr(problem.question)


def test_crlf_never_reaches_a_problem(sample: Callable[[str], Path]) -> None:
    given = records(sample("mbpp/mbpp.jsonl"))
    assert sum("\r\n" in record["code"] for record in given) > 0.9 * len(given)
    assert not any("\r" in repr(mbpp.parse(record)) or "\r" in mbpp.golds(record)[0] for record in given)


def test_mbpp_splits_by_number(samples: Path) -> None:
    splits = {record["task_id"]: mbpp.split_of(record) for record in records(samples / "mbpp/mbpp.jsonl")}
    assert [splits[task] for task in (9, 11, 511, 601)] == ["prompt", "test", "validation", "train"]


def test_mbpps_published_splits_have_their_published_sizes() -> None:
    splits = [mbpp.split_of(record) for record in records(benchmark("mbpp/mbpp.jsonl"))]
    assert {split: splits.count(split) for split in splits} == {
        "prompt": 10, "test": 500, "validation": 90, "train": 374,
    }  # fmt: skip
    sanitized = [mbpp.split_of(record) for record in records(benchmark("mbpp/sanitized-mbpp.json"))]
    assert (sanitized.count("train"), sanitized.count("test"), len(sanitized)) == (120, 257, 427)


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": "x"}, {"task_id": None}, {"test_list": []}, {"test_list": "assert f(1)"}, {"test_setup_code": 1},
        {"challenge_test_list": [1]}, {"test_imports": "import re"}, {"code": 3}, {"test_list": ["assert ("]},
    ],
)  # fmt: skip
def test_mbpp_with_a_wrong_type_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        mbpp.parse(mbpp_task(**change))


def test_humaneval_reads_examples_however_they_are_written() -> None:
    docstring = """
    >>> f(1)
    2
    >>> f(2) == 3
    f(3) => 4
    f("a, (b") ➞ [1, 2].
      * f(5) -> 3 + 3 = 6
    f(6) should return true.
    f(7)  # returns 'x'
    f(x) == 3   f(n) = 1
    f() == 1
    f(8) is odd
    """
    prompt = f'def f(x):\n    """{docstring}"""\n'
    problem = humaneval.parse({"task_id": "HumanEval/999", "prompt": prompt, "entry_point": "f", "test": CHECK})
    assert problem.question.public_tests == (
        "assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4", "assert f('a, (b') == [1, 2]",
        "assert f(5) == 6", "assert f(6) == True", "assert f(7) == 'x'",
    )  # fmt: skip


def test_humaneval_leaves_out_examples_that_are_wrong() -> None:
    given = {record["task_id"]: record for record in records(benchmark("humaneval/HumanEval.jsonl.gz"))}
    assert "15.0" in given["HumanEval/47"]["prompt"]
    assert not any("15.0" in test for test in humaneval.parse(given["HumanEval/47"]).question.public_tests)
    shown = [humaneval.parse(record).question.public_tests for record in given.values()]
    assert (sum(map(bool, shown)), sum(map(len, shown))) == (139, 392)


def test_choices_in_both_shapes(sample: Callable[[str], Path]) -> None:
    record = mmlu.from_row(["q", "a", "b", "c", "d", "C"])
    assert mmlu.parse(record) == mmlu.parse({**record, "answer": 2})
    assert mmlu.golds(record)[0] == "C"
    (first, *_) = records(sample("commonsenseqa/dev_rand_split.jsonl"))
    choices = first["question"]["choices"]
    hub = {
        "id": first["id"], "question": first["question"]["stem"], "answerKey": first["answerKey"],
        "choices": {"label": [c["label"] for c in choices], "text": [c["text"] for c in choices]},
    }  # fmt: skip
    assert commonsenseqa.parse(hub) == commonsenseqa.parse(first)


@pytest.mark.parametrize(
    "name",
    ["gsm8k/test.jsonl", "math", "squad_v2", "hotpotqa", "humaneval", "mbpp", "mmlu", "commonsenseqa"],
)
def test_every_problem_survives_the_projects_own_format(sample: Callable[[str], Path], name: str) -> None:
    for problem in load_file(sample(name)):
        again = custom.parse(json.loads(json.dumps(custom.to_record(problem))))
        assert again == problem


text = st.text(min_size=1, max_size=30).filter(str.strip)


@given(text, st.text(max_size=30), st.lists(text.map(str.strip), min_size=1, max_size=3, unique=True), text)
def test_any_problem_survives_the_projects_own_format(
    problem: str, context: str, answers: list[str], tests: str
) -> None:
    record = {"problem": problem, "context": context, "answer": answers, "type": "qa", "id": "1", "dataset": "d"}
    parsed = custom.parse(record)
    assert custom.parse(custom.to_record(parsed)) == parsed
    code = {
        "problem": problem, "tests": f"assert f({tests!r})", "type": "code", "entry_point": "f",
        "public_tests": ["assert f(1)"],
    }  # fmt: skip
    coded: Problem = custom.parse(code)
    assert custom.parse(custom.to_record(coded)) == coded


@given(st.sampled_from(sorted(DATASETS)), st.data())
def test_no_record_of_wrong_types_gets_past_a_parser_or_breaks_it(name: str, data: st.DataObject) -> None:
    keys = (
        "question answer problem solution context answers id _id is_impossible supporting_facts prompt test task_id "
        "entry_point canonical_solution code text test_list test_setup_code test_imports choices answerKey"
    ).split()
    value = st.none() | st.booleans() | st.integers() | text | st.lists(text | st.integers(), max_size=3)
    record = data.draw(st.dictionaries(st.sampled_from(keys), value | st.dictionaries(st.text(max_size=3), value)))
    try:
        problem = DATASETS[name].parse(record)
    except DataError:
        return
    assert problem.question.text.strip()
    assert problem.reference.answers or problem.reference.tests or problem.reference.unanswerable
