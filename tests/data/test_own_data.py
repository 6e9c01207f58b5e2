"""A user's own file: every fault is reported when the file is read, all at once, with file, line and cure."""

import codecs
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.any_json import any_json
from helpers.cli import CommandLine
from helpers.finished import as_options
from helpers.samples import write_lines
from helpers.tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data import forms
from llm_as_judge.data.problems import measured_problems, read_problems
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Problem

TABLES = tables(__file__)
MATHS, CODE = TABLES["MATHS"], TABLES["CODE"]
CHECK = "def check(candidate):\n    "


def written(folder: Path, *records: Any, name: str = "own.jsonl") -> Path:
    return write_lines(folder / name, records)


def one(folder: Path, **record: Any) -> Problem:
    (problem,) = read_problems(written(folder, record))
    return problem


def error(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_problems(path)
    return str(caught.value)


def test_records_other_spellings_and_good_tests_of_every_kind_are_accepted(tmp_path: Path) -> None:
    plain = one(tmp_path, problem="1+1?", answer=2, type="math", context="c")
    assert plain == one(tmp_path, question="1+1?", ground_truth="2", problem_type="math", context="c")
    several = one(tmp_path, question="?", answers=["a", "b", "a"], domain="qa", id="x", source="mine")
    assert (several.question.id, several.question.dataset, several.reference.answers) == ("x", "mine", ("a", "b"))
    assert one(tmp_path, question="?", answer="3 + 4 = 7\n#### 7", type="math").reference.answers == ("7",)
    assert one(tmp_path, question="?", unanswerable=True, type="qa").reference.unanswerable
    assert one(tmp_path, **{**MATHS, "problem": "1\0+ 1?"}).question.text == "1\0+ 1?"
    assert "no known benchmark" in error(written(tmp_path, {"instruction": "1+1?", "target": 2, "kind": "math"}))
    maths, code = read_problems(written(tmp_path, {**MATHS, "test": "yes", "entry_point": "f"}, {**CODE, "answer": {}}))
    assert (maths.reference.tests, maths.question.entry_point, code.reference.answers) == ("", None, ())
    gsm8k = {"question": "2 + 2?", "answer": "So.\n#### 4"}
    records = [gsm8k, MATHS, {**MATHS, "dataset": "mine"}, {**CODE, "source": "mine too"}, {**MATHS, "id": ""}]
    names = Counter(problem.question.dataset for problem in read_problems(written(tmp_path, *records)))
    assert names == {"gsm8k": 1, "custom": 2, "mine": 1, "mine too": 1}
    named: list[Any] = [
        CODE["tests"],
        ["x = 3", "assert sorted([add(1, 2)]) == [x]", "assert add(0, x) == 3"],
        "from math import isclose\nassert isclose(add(1, 2), 3)",
    ]
    others = [
        CHECK + "assert candidate(1, 2) == 3",
        "try:\n    add('a', 1)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError",
    ]
    records = [{**CODE, "entry_point": None, "tests": tests} for tests in named]
    problems = read_problems(written(tmp_path, *records, *({**CODE, "tests": tests} for tests in others)))
    assert {problem.question.entry_point for problem in problems} == {"add"}
    assert problems[1].reference.tests == "x = 3\nassert sorted([add(1, 2)]) == [x]\nassert add(0, x) == 3"


def test_every_bad_record_of_every_file_is_reported_with_line_and_reason(tmp_path: Path) -> None:
    cases = [*TABLES["bad records"], [{**CODE, "tests": ["assert add(" + "(" * 5000]}, "'tests' is not Python"]]
    wrong = []
    for record, reason in cases:
        path = written(tmp_path, MATHS, record)
        if not (message := error(path)).startswith(f"{path}:2: ") or reason not in message:
            wrong.append((record, message))
    assert not wrong
    folder = tmp_path / "all"
    bad = {**CODE, "tests": ["assert True"]}
    for name in ("a.jsonl", "b.jsonl"):
        written(folder, bad, MATHS, {**MATHS, "answer": ""}, name=name)
    places = [f"{folder}/{name}.jsonl:{line}" for name in "ab" for line in (1, 3)]
    assert [line.split(": ")[0] for line in error(folder).split("\n")] == places
    many = error(written(folder, *[bad] * 500, name="b.jsonl")).split("\n")
    assert len(many) == 21 and many[-1] == "... and 480 more bad records"
    with pytest.raises(DataError, match="bad"):  # a limit spreads over the whole file
        measured_problems(written(folder, MATHS, {**MATHS, "problem": "2?"}, {"bad": 1}), limit=2)


def test_files_are_read_whatever_their_form_or_refused_with_the_cure(tmp_path: Path) -> None:
    plain = written(tmp_path, MATHS, CODE)
    content = plain.read_bytes()
    array = json.dumps([MATHS, CODE], indent=1).encode()
    for name, other in (
        ("a.jsonl.gz", gzip.compress(content)), ("b.jsonl", codecs.BOM_UTF8 + content),
        ("c.jsonl", content.replace(b"\n", b"\r\n") + b"\r\n\r\n"), ("d.json", array),
        ("e.json", codecs.BOM_UTF8 + array.replace(b"\n", b"\r\n")),
        ("f.json.gz", gzip.compress(codecs.BOM_UTF8 + array)),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(other)
        assert read_problems(tmp_path / name) == read_problems(plain), name
    wide = json.dumps(MATHS).encode("utf-16")
    for name, content, reason in (
        ("empty.jsonl", b"\n\n", "no problems in it"), ("empty.json", b"[]", "no problems in it"),
        ("empty.json.gz", gzip.compress(b""), "no problems in it"), ("wide.jsonl", wide, "not UTF-8"),
        ("wide.json.gz", gzip.compress(wide), "not UTF-8"), ("nul.jsonl", b"\0" * 100, "not JSON"),
        ("table.csv", b"problem,answer,type\n1+1?,2\n", "3 columns (problem, answer, type), and the row has 2"),
        ("problems.zip", b"PK", "cannot read .zip; use .json, .jsonl"), ("problems", b"{}", "a file without suffix"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        assert reason in error(tmp_path / name) and name in error(tmp_path / name), name
    assert "no such file" in error(tmp_path / "absent.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in error(tmp_path / "pipe.jsonl")
    endless = written(tmp_path, {**CODE, "tests": "assert add(1, 2)\n" * 70_000})
    assert "characters, more than 1,000,000" in error(endless)


changes = st.dictionaries(
    st.sampled_from([
        *("problem", "answer", "type", "tests", "entry_point", "public_tests", "prelude", "context", "id", "dataset"),
        *("unanswerable", "question", "choices", "answers", "solution", "test_list", "prompt", "test", "answerKey"),
        *("supporting_facts", "text", "task_id", "paragraphs", "data"),
    ]),
    any_json(st.sampled_from(DOMAINS)),
    max_size=4,
)  # fmt: skip


@settings(max_examples=120)
@given(
    st.sampled_from([MATHS, CODE, {"question": "2?", "answer": "#### 2"}, {}]),
    changes,
    st.sampled_from([".jsonl", ".json", ".csv", ".jsonl.gz"]),
    st.binary(max_size=6),
    st.integers(0, 400),
)
def test_no_content_of_a_file_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, record: Any, change: Any, suffix: str, noise: bytes, place: int
) -> None:
    content = json.dumps({**record, **change}).encode()
    content = content[:place] + noise + content[place:]
    path = tmp_path_factory.mktemp("any") / f"own{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    try:
        problems = read_problems(path)
    except DataError as error:
        assert str(path) in str(error)
        return
    for problem in problems:  # accepted problems can be written, asked and judged
        assert forms.parse(json.loads(json.dumps(forms.to_record(problem)))) == problem
        problem.question.statement.encode()


OWN: list[dict[str, Any]] = [
    *({"problem": f"{i} + {i}?", "answer": 2 * i, "type": "math"} for i in range(12)),
    *({"problem": f"Who is {i}?", "context": f"It is {i}.", "answer": [f"{i}"], "type": "qa"} for i in range(12)),
    *({"problem": f"Add {i}.", "type": "code", "tests": [f"assert add_{i}(1) == {i + 1}"]} for i in range(12)),
    {"problem": "Who else?", "context": "Nobody.", "unanswerable": True, "type": "qa"},
]


def test_the_commands_work_on_own_files_without_any_benchmark(here: Path, cli: CommandLine) -> None:
    own, few = written(Path(), *OWN), written(Path(), *OWN[:14], name="few.jsonl")
    process = ["data", "process", "--custom"]
    assert "no benchmark is in data/raw" in cli(*process, own, "--train-size", 30, "--test-size", 6)
    info = json.loads(Path("data/mixed/info.json").read_text())
    assert info["mixed"]["train"]["domains"] == {"math": 12, "qa": 9, "code": 9}
    shown = cli("data", "inspect", "--examples", 0)
    assert all(f"custom, {domain}" in shown for domain in DOMAINS)
    (sets,) = cli.json("data", "inspect", "--file", own)["sides"].values()
    lines = {"custom, math": 12, "custom, qa": 13, "custom, code": 12}
    assert {name: facts["lines"] for name, facts in sets.items()} == lines
    assert "gsm8k: split 'train' is not in data/raw" in cli.refused(*process, own, "--datasets", "gsm8k")
    assert "no qa problems for the test mix; add some, or set its ratio to 0" in cli.refused(*process, few)


def test_check_judges_own_files_and_reports_every_fault(here: Path, cli: CommandLine) -> None:
    def check(*records: Any, status: int = 0) -> str:
        return cli("data", "check", "--file", written(Path(), *records), status=status)

    gsm8k = {"question": "2 + 2?", "answer": "It is four.\n#### 4"}
    (report,) = cli.json("data", "check", "--file", written(Path(), *OWN, gsm8k)).values()
    assert report == {"records": 38, "golds": 26, "failures": []}
    lax = {"id": "lax", "problem": "Sort.", "type": "code", "tests": ["assert sort([]) is None"]}
    broken = {"problem": "?", "type": "code", "entry_point": "f", "tests": ["assert g(1)"]}
    shown = check(lax, broken, *OWN, status=1)
    assert "own.jsonl:1: lax: line 1 of the tests: the tests also pass a function that returns None" in shown
    assert "own.jsonl:2: field 'tests': the tests of 'f' never use it" in shown
    assert "25 answers of 39 records, 2 faults" in shown
    assert "... and 80 more" in check(*[broken] * 100, status=1)


def test_runs_refuse_tests_that_pass_anything_before_they_begin(here: Path, cli: CommandLine, address: str) -> None:
    lax = {"id": "lax", "problem": "Sort.", "type": "code", "tests": ["import math", "assert (sort([1]) == [1], '')"]}
    loose = {**lax, "id": "loose", "entry_point": "sort", "tests": ["sort([2, 1])"]}
    own, good = written(Path(), *OWN, lax, loose), written(Path(), *OWN, name="good.jsonl")
    settings = as_options([f"executor.base_url={address}", f"judge.base_url={address}"])
    files = as_options([f"train_dataset={own}", f"test_dataset={good}"])
    for command in (["evaluate", "--data", own], ["compare", "--data", own], ["train", *files]):
        shown = " ".join(cli.refused(*command, *settings).split())
        assert "own.jsonl:38: lax: line 2 of the tests: the tests also pass a function that returns None" in shown
        assert "own.jsonl:39: loose: line 1 of the tests: the tests also pass" in shown
    assert not list(here.rglob("step_*")) and not list(here.rglob("*records*.jsonl"))
