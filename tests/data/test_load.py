"""Every benchmark's records parse; bad files say where and why."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import benchmark
from helpers.samples import hub_record

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.data.load import load_file
from llm_as_judge.data.reading import files_in, read
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
    ("name", "dataset", "invented", "published"),
    [
        ("gsm8k/train.jsonl", "gsm8k", 14, 2000),
        ("gsm8k/test.jsonl", "gsm8k", 6, 700),
        ("math", "math", 20, 234),
        ("squad_v2/dev-v2.0.json", "squad2", 9, 706),
        ("hotpotqa/hotpot_dev_distractor_v1.json", "hotpotqa", 6, 100),
        ("hotpotqa/hotpot_train_v1.1.json", "hotpotqa", 12, 150),
        ("hotpotqa/hf_columns_dev_distractor.json", "hotpotqa", 6, 50),
        ("humaneval/HumanEval.jsonl.gz", "humaneval", 8, 164),
        ("mbpp/mbpp.jsonl", "mbpp", 27, 974),
        ("mbpp/sanitized-mbpp.json", "mbpp", 26, 427),
        ("mmlu", "mmlu", 30, 577),
        ("commonsenseqa/train_rand_split.jsonl", "commonsenseqa", 12, 1000),
        ("commonsenseqa/dev_rand_split.jsonl", "commonsenseqa", 6, 400),
    ],
)
def test_every_record_parses(
    sample: Callable[[str], Path], samples: Path, name: str, dataset: str, invented: int, published: int
) -> None:
    path = sample(name)
    problems = load_file(path)
    assert len(problems) == invented if samples in path.parents else len(problems) >= published
    assert len({problem.question.id for problem in problems}) == len(problems)
    for problem in problems:
        question, reference = problem.question, problem.reference
        assert question.dataset == dataset
        assert question.text.strip()
        if question.domain == "code":
            assert reference.tests and question.entry_point and not reference.answers
        else:
            assert bool(reference.answers) != reference.unanswerable
            assert all(matches(answer, [answer], question.domain) for answer in reference.answers)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("squad2", "squad_v2/train-v2.0.json"),
        ("hotpotqa", "hotpotqa/hotpot_train_v1.1.json"),
        ("mmlu", "mmlu/test"),
        ("commonsenseqa", "commonsenseqa/train_rand_split.jsonl"),
    ],
)
def test_the_hubs_shape_and_the_release_are_the_same_problems(
    samples: Path, tmp_path: Path, dataset: str, name: str
) -> None:
    release = [raw.record for file in files_in(samples / name) for raw in read(file)]
    hub = written(tmp_path, *(hub_record(dataset, record) for record in release))
    assert load_file(hub) == load_file(samples / name)


def test_gsm8k_answers_are_plain_numbers(sample: Callable[[str], Path]) -> None:
    answers = [p.reference.answers[0] for p in load_file(sample("gsm8k/train.jsonl"))]
    assert all(answer.lstrip("-").replace(".", "").isdigit() for answer in answers)


def test_squad_keeps_every_annotator_and_the_unanswerable(sample: Callable[[str], Path]) -> None:
    problems = load_file(sample("squad_v2/dev-v2.0.json"))
    assert all(problem.question.context for problem in problems)
    assert any(problem.reference.unanswerable for problem in problems)
    assert any(len(problem.reference.answers) == 2 for problem in problems)


def test_squads_annotators_differ_on_a_known_question() -> None:
    by_id = {problem.question.id: problem for problem in load_file(benchmark("squad_v2/dev-v2.0.json"))}
    assert by_id["squad2/56ddde6b9a695914005b9629"].reference.answers == (
        "10th and 11th centuries",
        "in the 10th and 11th centuries",
    )


def test_hotpot_context_holds_every_paragraph_and_nothing_points_at_the_right_ones(
    sample: Callable[[str], Path],
) -> None:
    for problem in load_file(sample("hotpotqa/hotpot_dev_distractor_v1.json"), limit=5):
        assert len(problem.question.context.split("\n")) >= 2
        assert "supporting" not in repr(problem.question)


def test_humaneval_tests_run_on_the_gold_solutions_and_stay_apart(sample: Callable[[str], Path]) -> None:
    path = sample("humaneval/HumanEval.jsonl.gz")
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for record, problem in zip(records, load_file(path), strict=True):
        assert problem.reference.tests not in repr(problem.question)
        namespace: dict[str, Any] = {}
        exec(record["prompt"] + record["canonical_solution"], namespace)
        for test in problem.question.public_tests:
            assert f"{problem.question.entry_point}(" in test
            exec(test, namespace)


def test_humaneval_prelude_holds_imports_and_helpers(samples: Path) -> None:
    problems = {p.question.id: p for p in load_file(samples / "humaneval")}
    assert problems["humaneval/1000"].reference.prelude == "from typing import List"
    helped = problems["humaneval/1001"]
    assert "def offset_1" in helped.reference.prelude and "def scaled_1" not in helped.reference.prelude


def test_humaneval_preludes_of_known_tasks() -> None:
    problems = {p.question.id: p for p in load_file(benchmark("humaneval/HumanEval.jsonl.gz"))}
    assert problems["humaneval/0"].reference.prelude == "from typing import List"
    for id_, helper in (("32", "def poly"), ("38", "def encode_cyclic"), ("50", "def encode_shift")):
        prelude = problems[f"humaneval/{id_}"].reference.prelude
        assert helper in prelude
        assert f"def {problems[f'humaneval/{id_}'].question.entry_point}" not in prelude


@pytest.mark.parametrize("task", ["602", "367"])
def test_mbpp_setup_runs_after_the_solution(samples: Path, task: str) -> None:
    path = samples / "mbpp/mbpp.jsonl" if task == "602" else benchmark("mbpp/mbpp.jsonl")
    problems = {p.question.id: p for p in load_file(path)}
    problem = problems[f"mbpp/{task}"]
    assert problem.reference.tests.startswith("root = Node(1)")
    assert "Node" not in problem.reference.prelude
    assert "\r" not in problem.reference.tests
    assert len(problems["mbpp/1"].question.public_tests) == 1
    assert problems["mbpp/1"].reference.tests.count("assert") >= 3
    if task == "367":
        assert problems["mbpp/927"].question.entry_point == "max_height"
        assert problems["mbpp/601"].question.entry_point == "max_chain_length"


def test_choices_are_in_the_text_and_letter_or_text_is_right(samples: Path) -> None:
    problem = load_file(samples / "commonsenseqa/train_rand_split.jsonl")[1]
    assert "\nA. volcano\nB. shop" in problem.question.text
    for answer in ("B", "(B)", "shop", "B. shop"):
        assert matches(answer, problem.reference.answers, "qa")
    for answer in ("A", "volcano", "A. volcano"):
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
