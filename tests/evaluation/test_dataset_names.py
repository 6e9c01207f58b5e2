"""``evaluate --datasets``: test sets by name, each a row of the results."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.knowing import knowing
from helpers.workflows import SINGLE_CALL

from llm_as_judge.commands.app import main
from llm_as_judge.data.problems import sets_named
from llm_as_judge.errors import ConfigError

PROBLEMS = {
    "gsm8k_test.jsonl": {"question": "What is 2 + 2?", "answer": "It is 4.\n#### 4"},
    "math_test.jsonl": {
        "problem": "What is 3 + 3?",
        "solution": "It is $\\boxed{6}$.",
        "level": "1",
        "type": "Algebra",
    },
    "own.jsonl": {"problem": "What is 4 + 4?", "answer": "8", "type": "math", "dataset": "own"},
}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A command whose executor is a server on this machine, in a folder with three test sets."""
    monkeypatch.chdir(tmp_path)
    Path("data/test").mkdir(parents=True)
    for name, record in PROBLEMS.items():
        Path("data/test", name).write_text(json.dumps(record) + "\n")
    Path("w.py").write_text(SINGLE_CALL)
    with knowing() as served:
        settings = {"executor.provider": "openai", "executor.base_url": served.url, "executor.model": "knowing"}
        yield ["evaluate", "--workflow", "w.py", *(w for k, v in settings.items() for w in ("--set", f"{k}={v}"))]


def test_a_folder_that_data_process_wrote_is_each_of_its_sets(words: list[str]) -> None:
    Path("data/test/own.jsonl").rename("data/test/own_test.jsonl")
    Path("data/test/test_index.json").write_text("{}")
    assert main([*words, "--data", "data/test", "--limit", "1"]) == 0
    (file,) = Path("results/evaluation").glob("*_results.json")
    rows = {row["dataset"]: row["metrics"]["problems"] for row in json.loads(file.read_text())["datasets"]}
    assert rows == {"gsm8k": 1, "math": 1, "own": 1}


def test_the_named_sets_are_rows_and_another_adds_its_own(words: list[str]) -> None:
    assert main([*words, "--datasets", "math,gsm8k"]) == 0
    (file,) = Path("results/evaluation").glob("*_results.json")
    assert [row["dataset"] for row in json.loads(file.read_text())["datasets"]] == ["math", "gsm8k"]
    assert main([*words, "--datasets", "own"]) == 0
    rows = [(row["dataset"], row["metrics"]["accuracy"]) for row in json.loads(file.read_text())["datasets"]]
    assert rows == [("math", 0.0), ("gsm8k", 0.0), ("own", 0.0)]
    if jq := shutil.which("jq"):
        query = [jq, "-c", ".datasets[] | {name: .dataset, accuracy: .metrics.accuracy}", file]
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
        assert told[0] == '{"name":"math","accuracy":0}' and len(told) == 3


def test_an_unknown_name_is_reported_with_the_known_ones(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for options, message in (
        (["gsm9k"], "--datasets gsm9k: no such test set; did you mean 'gsm8k'? there are gsm8k, math"),
        ([""], "names no test set; there are gsm8k, math, own in data/test"),
        (["math", "--data", "data/test/gsm8k_test.jsonl"], "there are gsm8k in data/test"),
        (["math", "--data", "data"], "there are none in data"),
    ):
        status = main([*words, "--datasets", *options])
        if status != 2 or message not in (error := capsys.readouterr().err):
            wrong.append((options, status, error))
    assert not wrong


def test_without_test_sets_it_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere does not exist; make the test sets \(llm-as-judge data process\)"):
        sets_named([tmp_path / "nowhere"], ["gsm8k"])
