"""Every benchmark's real records parse; bad files say where and why."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import benchmark

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.datasets.load import load_file
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem


def written(folder: Path, *records: Any) -> Path:
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def one(folder: Path, **record: Any) -> Problem:
    (problem,) = load_file(written(folder, record))
    return problem


@pytest.mark.parametrize(
    ("name", "dataset", "count"),
    [
        ("gsm8k/train.jsonl", "gsm8k", 2000),
        ("gsm8k/test.jsonl", "gsm8k", 700),
        ("math", "math", 234),
        ("squad_v2/dev-v2.0.json", "squad2", 706),
        ("hotpotqa/hotpot_dev_distractor_v1.json", "hotpotqa", 100),
        ("hotpotqa/hotpot_train_v1.1.json", "hotpotqa", 150),
        ("hotpotqa/hf_columns_dev_distractor.json", "hotpotqa", 50),
        ("humaneval/HumanEval.jsonl.gz", "humaneval", 164),
        ("mbpp/mbpp.jsonl", "mbpp", 974),
        ("mbpp/sanitized-mbpp.json", "mbpp", 427),
        ("mmlu", "mmlu", 577),
        ("commonsenseqa/train_rand_split.jsonl", "commonsenseqa", 1000),
        ("commonsenseqa/dev_rand_split.jsonl", "commonsenseqa", 400),
    ],
)
def test_every_real_record_parses(name: str, dataset: str, count: int) -> None:
    problems = load_file(benchmark(name))
    assert len(problems) == count
    assert len({problem.question.id for problem in problems}) == count
    for problem in problems:
        question, reference = problem.question, problem.reference
        assert question.dataset == dataset
        assert question.text.strip()
        if question.domain == "code":
            assert reference.tests and question.entry_point and not reference.answers
        else:
            assert bool(reference.answers) != reference.unanswerable
            assert all(matches(answer, [answer], question.domain) for answer in reference.answers)


def test_gsm8k_answers_are_plain_numbers() -> None:
    answers = [p.reference.answers[0] for p in load_file(benchmark("gsm8k/train.jsonl"))]
    assert all(answer.lstrip("-").replace(".", "").isdigit() for answer in answers)


def test_squad_keeps_every_annotator_and_the_unanswerable() -> None:
    problems = load_file(benchmark("squad_v2/dev-v2.0.json"))
    assert sum(problem.reference.unanswerable for problem in problems) == 320
    by_id = {problem.question.id: problem for problem in problems}
    assert by_id["squad2/56ddde6b9a695914005b9629"].reference.answers == (
        "10th and 11th centuries",
        "in the 10th and 11th centuries",
    )
    assert all(problem.question.context for problem in problems)


def test_hotpot_context_holds_every_paragraph_and_nothing_points_at_the_right_ones() -> None:
    for problem in load_file(benchmark("hotpotqa/hotpot_dev_distractor_v1.json"), limit=5):
        assert len(problem.question.context.split("\n")) >= 2
        assert "supporting" not in repr(problem.question)


def test_humaneval_tests_run_on_the_gold_solutions_and_stay_apart() -> None:
    path = benchmark("humaneval/HumanEval.jsonl.gz")
    raw = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    failing = []
    for record, problem in zip(raw, load_file(path), strict=True):
        assert problem.reference.tests not in repr(problem.question)
        namespace: dict[str, Any] = {}
        exec(record["prompt"] + record["canonical_solution"], namespace)
        for test in problem.question.public_tests:
            assert f"{problem.question.entry_point}(" in test
            try:
                exec(test, namespace)
            except AssertionError:
                failing.append(record["task_id"])
    assert failing == []


def test_humaneval_prelude_holds_imports_and_helpers() -> None:
    problems = {p.question.id: p for p in load_file(benchmark("humaneval/HumanEval.jsonl.gz"))}
    assert problems["humaneval/0"].reference.prelude == "from typing import List"
    for id_, helper in (("32", "def poly"), ("38", "def encode_cyclic"), ("50", "def encode_shift")):
        prelude = problems[f"humaneval/{id_}"].reference.prelude
        assert helper in prelude
        assert f"def {problems[f'humaneval/{id_}'].question.entry_point}" not in prelude


def test_mbpp_setup_runs_after_the_solution() -> None:
    problems = {p.question.id: p for p in load_file(benchmark("mbpp/mbpp.jsonl"))}
    assert problems["mbpp/367"].reference.tests.startswith("root = Node(1)")
    assert "Node" not in problems["mbpp/367"].reference.prelude
    assert "\r" not in problems["mbpp/367"].reference.tests
    assert problems["mbpp/927"].question.entry_point == "max_height"
    assert problems["mbpp/601"].question.entry_point == "max_chain_length"
    assert len(problems["mbpp/1"].question.public_tests) == 1
    assert problems["mbpp/1"].reference.tests.count("assert") == 3


def test_choices_are_in_the_text_and_letter_or_text_is_right() -> None:
    (problem,) = load_file(benchmark("commonsenseqa/dev_rand_split.jsonl"), limit=1)
    assert "A. bank\nB. library" in problem.question.text
    for answer in ("A", "(A)", "bank", "A. bank"):
        assert matches(answer, problem.reference.answers, "qa")
    for answer in ("B", "library", "B. bank"):
        assert not matches(answer, problem.reference.answers, "qa")


def test_limit_stops_early(tmp_path: Path) -> None:
    good = {"problem": "1+1?", "answer": 2, "type": "math"}
    path = written(tmp_path, good, {**good, "problem": "2+2?"}, {"bad": 1})
    assert len(load_file(path, limit=2)) == 2
    with pytest.raises(DataError, match="limit"):
        load_file(path, limit=0)


def test_custom_records_and_their_aliases(tmp_path: Path) -> None:
    plain = one(tmp_path, problem="1+1?", answer=2, type="math", context="c")
    alias = one(tmp_path, question="1+1?", ground_truth="2", problem_type="math", context="c")
    assert plain == alias
    assert plain.reference.answers == ("2",)
    several = one(tmp_path, question="?", answers=["a", "b", "a"], domain="qa", id="x", source="mine")
    assert (several.question.id, several.question.dataset) == ("x", "mine")
    assert several.reference.answers == ("a", "b")
    raw = one(tmp_path, question="?", answer="3 + 4 = 7\n#### 7", type="math")
    assert raw.reference.answers == ("7",)
    assert one(tmp_path, question="?", unanswerable=True, type="qa").reference.unanswerable


def test_custom_code(tmp_path: Path) -> None:
    problem = one(tmp_path, problem="Add.", type="code", tests=["assert add(1, 2) == 3", "assert add(0, 0) == 0"])
    assert problem.question.entry_point == "add"
    assert problem.question.public_tests == ()
    assert problem.reference.tests == "assert add(1, 2) == 3\nassert add(0, 0) == 0"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"problem": "?", "answer": "1"}, "'type' is missing: one of math, code, qa"),
        ({"problem": "?", "answer": "1", "type": "maths"}, "got 'maths'"),
        ({"problem": "?", "type": "math"}, "unanswerable"),
        ({"problem": "?", "type": "math", "answer": " "}, "empty"),
        ({"problem": "?", "type": "math", "answer": {"a": 1}}, "text, a number"),
        ({"problem": " ", "type": "math", "answer": "1"}, "non-empty"),
        ({"problem": "?", "type": "code"}, "needs 'tests'"),
        ({"problem": "?", "type": "code", "tests": "def check(candidate): ..."}, "entry_point"),
        ({"foo": 1}, "'foo'"),
        ([1], "must be an object, got list"),
        ({"question": "?", "answer": "#### "}, "#### N"),
        ({"question": "?", "choices": ["a"], "answer": 0}, "4 choices"),
        ({"question": "?", "context": "c", "answers": [], "is_impossible": False}, "0 answers"),
        ({"problem": "?", "solution": "no box"}, "boxed"),
        ({"prompt": "def f(): ...", "entry_point": "g", "test": "t", "task_id": "1"}, "'g'"),
        ({"text": "t", "test_list": ["assert 1 == 1"], "task_id": 1}, "no function"),
    ],
)
def test_a_bad_record_names_file_line_and_reason(tmp_path: Path, record: Any, reason: str) -> None:
    path = written(tmp_path, {"problem": "1+1?", "answer": 2, "type": "math"}, record)
    with pytest.raises(DataError) as caught:
        load_file(path)
    assert f"{path}:2: " in str(caught.value)
    assert reason in str(caught.value)


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    def error(name: str, content: bytes | None) -> str:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            load_file(tmp_path / name)
        assert name in str(caught.value)
        return str(caught.value)

    assert "no such file" in error("absent.jsonl", None)
    assert "no problems" in error("empty.jsonl", b"\n\n")
    assert ":2: not JSON" in error("torn.jsonl", b'{"problem": "?", "answer": 1, "type": "math"}\n{"prob')
    assert ":2: not JSON" in error("torn.json", b'[{"problem": "?"},\n{"prob')
    assert ":1: not UTF-8" in error("latin.jsonl", b'{"problem": "\xe9"}')
    assert "cannot be read" in error("torn.jsonl.gz", gzip.compress(b"{}\n" * 1000)[:-20])
    assert "cannot be read" in error("fake.jsonl.gz", b"plain text")
    assert "use .json" in error("problems.parquet", b"PAR1")
    assert ":1: an MMLU row has 6 columns" in error("x.csv", b"a,b\n")
    (tmp_path / "folder").mkdir()
    assert "no problems" in error("folder", None)
