"""A user's own file: what would end a run half way is told when the file is read, all of it at once, with the cure."""

from __future__ import annotations

import codecs
import errno
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.load import load_file
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS

MATHS = {"problem": "1 + 1?", "answer": "2", "type": "math"}
CODE = {"problem": "Add.", "type": "code", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}


def written(folder: Path, *records: Any, name: str = "own.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def error(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_file(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tests": ["assert 1 + 2 == 3"]}, "'tests' never uses add, so that any solution would pass"),
        ({"tests": "def check(candidate):\n    assert add_all(1) == 1"}, "'tests' never uses candidate"),
        ({"tests": "def check():\n    assert add(1, 2) == 3"}, "check must take the function to test"),
        ({"tests": ["assert add(1, 2) =="]}, "'tests' is not Python in line 1"),
        ({"tests": ["assert add('\0', 2) == 3"]}, "'tests' is not Python"),
        ({"tests": ["assert add(" + "(" * 5000]}, "'tests' is not Python"),
        ({"tests": ["add(1, 2)"]}, "'tests' asserts nothing"),
        ({"tests": []}, "a code problem needs 'tests'"),
        ({"prelude": "import ("}, "'prelude' is not Python"),
        ({"public_tests": ["assert add(1, 2) == 3; assert add(1, 1) == 2"]}, "single asserts on add"),
        ({"public_tests": ["print(add(1, 2))"]}, "single asserts on add"),
        ({"public_tests": [">>> add(1, 2)"]}, "'public_tests' is not Python"),
        ({"entry_point": "add two"}, "'entry_point' must be the name of a function, got 'add two'"),
        ({"entry_point": None, "tests": "def check(candidate):\n    assert candidate(1, 2) == 3"}, "'entry_point'"),
        ({"entry_point": None, "tests": ["assert add(1, inc(1)) == 3"]}, "the tests call add and inc"),
        ({"entry_point": None, "tests": ["assert len([1]) == 1"]}, "call no function of the solution"),
    ],
)
def test_tests_that_cannot_judge_are_told_at_load(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    path = written(tmp_path, MATHS, {**CODE, **change})
    message = error(path)
    assert message.startswith(f"{path}:2: ") and told in message


def test_good_tests_of_every_kind_are_taken(tmp_path: Path) -> None:
    records = [
        CODE,
        {**CODE, "entry_point": None, "tests": ["x = 3", "assert sorted([add(1, 2)]) == [x]", "assert add(0, x) == 3"]},
        {**CODE, "entry_point": None, "tests": "from math import isclose\nassert isclose(add(1, 2), 3)"},
        {**CODE, "tests": "def check(candidate):\n    assert candidate(1, 2) == 3"},
        {**CODE, "tests": "try:\n    add('a', 1)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError"},
        {**CODE, "tests": "import unittest\nunittest.TestCase().assertEqual(add(1, 2), 3)"},
    ]
    problems = load_file(written(tmp_path, *records))
    assert {problem.question.entry_point for problem in problems} == {"add"}


def test_benchmark_records_that_were_edited_are_told_too(tmp_path: Path) -> None:
    edited = {
        "task_id": "HumanEval/1", "prompt": "def f(x):\n    ...\n", "entry_point": "f", "canonical_solution": "",
        "test": "def check(candidate):\n    pass",
    }  # fmt: skip
    assert "'tests' never uses candidate" in error(written(tmp_path, edited))


def test_all_bad_records_are_told_at_once_and_a_great_many_are_counted(tmp_path: Path) -> None:
    bad = {**CODE, "tests": ["assert True"]}
    told = error(written(tmp_path, bad, MATHS, {**MATHS, "answer": ""}, bad)).split("\n")
    assert [line.split(":")[1] for line in told] == ["1", "3", "4"]
    many = error(written(tmp_path, *[bad] * 500)).split("\n")
    assert len(many) == 21 and many[-1] == "... and 480 more bad records"


def test_numbers_that_are_no_numbers_are_no_answers(tmp_path: Path) -> None:
    for answer in (float("nan"), float("inf"), [1, float("-inf")]):
        assert "must be a finite number" in error(written(tmp_path, {**MATHS, "answer": answer}))


def test_what_belongs_to_another_domain_is_ignored(tmp_path: Path) -> None:
    maths, code = load_file(written(tmp_path, {**MATHS, "test": "yes", "entry_point": "f"}, {**CODE, "answer": {}}))
    assert (maths.reference.tests, maths.question.entry_point) == ("", None)
    assert code.reference.answers == ()


def test_every_problem_of_a_mixed_file_has_the_name_of_its_dataset(tmp_path: Path) -> None:
    gsm8k = {"question": "2 + 2?", "answer": "So.\n#### 4"}
    records = [gsm8k, MATHS, {**MATHS, "dataset": "mine"}, {**CODE, "source": "mine too"}, {**MATHS, "id": ""}]
    names = Counter(problem.question.dataset for problem in load_file(written(tmp_path, *records)))
    assert names == {"gsm8k": 1, "custom": 2, "mine": 1, "mine too": 1}


def test_a_benchmarks_folder_is_read_like_a_file(samples: Path) -> None:
    assert len(load_file(samples / "math")) == len(load_file(samples / "math/MATH")) == 20
    assert len(load_file(samples / "squad_v2")) == 24


def test_gzip_bom_and_crlf_make_no_difference(tmp_path: Path) -> None:
    plain = written(tmp_path, MATHS, CODE)
    content = plain.read_bytes()
    array = json.dumps([MATHS, CODE], indent=1).encode()
    for name, other in (
        ("a.jsonl.gz", gzip.compress(content)),
        ("b.jsonl", codecs.BOM_UTF8 + content),
        ("c.jsonl", content.replace(b"\n", b"\r\n") + b"\r\n\r\n"),
        ("d.json", array),
        ("e.json", codecs.BOM_UTF8 + array.replace(b"\n", b"\r\n")),
        ("f.json.gz", gzip.compress(codecs.BOM_UTF8 + array)),
    ):
        (tmp_path / name).write_bytes(other)
        assert load_file(tmp_path / name) == load_file(plain), name


def test_files_that_cannot_be_meant_are_told_with_the_cure(tmp_path: Path) -> None:
    for name, content, told in (
        ("empty.jsonl", b"", "no problems in it"),
        ("empty.json", b"[]", "no problems in it"),
        ("empty.json.gz", gzip.compress(b""), "no problems in it"),
        ("wide.jsonl", json.dumps(MATHS).encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("wide.json.gz", gzip.compress(json.dumps(MATHS).encode("utf-16")), "is UTF-16; save it as UTF-8"),
        ("nul.jsonl", b"\0" * 100, "not JSON"),
        ("table.csv", b"problem,answer,type\n1+1?,2,math\n", "your own problems go into .jsonl"),
        ("problems.zip", b"PK", "cannot read .zip; use .json, .jsonl"),
        ("problems", b"{}", "a file without suffix"),
    ):
        (tmp_path / name).write_bytes(content)
        assert told in error(tmp_path / name) and name in error(tmp_path / name), name
    assert "file name too long" in error(tmp_path / ("x" * 300 + ".jsonl"))
    (tmp_path / "empty").mkdir()
    assert "no problems in it" in error(tmp_path / "empty")


def test_a_nul_byte_in_a_text_is_kept(tmp_path: Path) -> None:
    (problem,) = load_file(written(tmp_path, {**MATHS, "problem": "1\0+ 1?"}))
    assert problem.question.text == "1\0+ 1?"


def test_a_folder_that_may_not_be_listed_is_told_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, MATHS)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("closed"):  # whoever runs this as root may list everything
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert error(tmp_path) == f"{tmp_path / 'closed'}: cannot be read: permission denied"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(DOMAINS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
changes = st.dictionaries(
    st.sampled_from([
        *("problem", "answer", "type", "tests", "entry_point", "public_tests", "prelude", "context", "id", "dataset"),
        *("unanswerable", "question", "choices", "answers", "solution", "test_list", "prompt", "test", "answerKey"),
        *("supporting_facts", "text", "task_id", "paragraphs", "data"),
    ]),
    values,
    max_size=4,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([MATHS, CODE, {"question": "2?", "answer": "#### 2"}, {}]),
    changes,
    st.sampled_from([".jsonl", ".json", ".csv", ".jsonl.gz"]),
    st.binary(max_size=6),
    st.integers(0, 400),
)
def test_no_file_of_any_content_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, record: Any, change: Any, suffix: str, noise: bytes, place: int
) -> None:
    content = json.dumps({**record, **change}).encode()
    content = content[:place] + noise + content[place:]
    path = tmp_path_factory.mktemp("any") / f"own{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    try:
        problems = load_file(path)
    except DataError as error:
        assert str(path) in str(error)
        return
    for problem in problems:  # what was taken can be written, asked and judged
        assert custom.parse(json.loads(json.dumps(custom.to_record(problem)))) == problem
        problem.question.statement.encode()
