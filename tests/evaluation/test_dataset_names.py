"""``evaluate --datasets``: test sets by name, each a row of the results."""

import json
from pathlib import Path

import pytest
from helpers.knowing import knowing
from helpers.workflows import SINGLE_CALL

from llm_as_judge.commands.app import main

PROBLEMS = {
    "gsm8k_test.jsonl": {"question": "What is 2 + 2?", "answer": "It is 4.\n#### 4"},
    "math_test.jsonl": {
        "problem": "What is 3 + 3?", "solution": "It is $\\boxed{6}$.", "level": "1", "type": "Algebra",
    },
    "own.jsonl": {"problem": "What is 4 + 4?", "answer": "8", "type": "math", "dataset": "own"},
}  # fmt: skip


def test_named_sets_and_whole_folders_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with knowing() as served:
        words = ["evaluate", "--workflow", "w.py", "--set", "executor.provider=openai"]
        words += ["--set", f"executor.base_url={served.url}", "--set", "executor.model=knowing"]
        Path("w.py").write_text(SINGLE_CALL)
        assert main([*words, "--datasets", "gsm8k"]) == 2
        assert "make the test sets (llm-as-judge data process)" in capsys.readouterr().err
        Path("data/test").mkdir(parents=True)
        for name, record in PROBLEMS.items():
            Path("data/test", name).write_text(json.dumps(record) + "\n")
        wrong = []
        for options, message in (
            (["gsm9k"], "--datasets gsm9k: no such test set; did you mean 'gsm8k'? there are gsm8k, math"),
            ([""], "the value of --datasets is empty"),
            (["math", "--data", "data/test/gsm8k_test.jsonl"], "there are gsm8k in data/test"),
            (["math", "--data", "data"], "there are none in data"),
        ):
            status = main([*words, "--datasets", *options])
            if status != 2 or message not in (error := capsys.readouterr().err):
                wrong.append((options, status, error))
        assert not wrong
        assert main([*words, "--datasets", "math,gsm8k"]) == main([*words, "--datasets", "own"]) == 0
        (file,) = Path("results/evaluation").glob("*_results.json")
        rows = [(row["dataset"], row["metrics"]["accuracy"]) for row in json.loads(file.read_text())["datasets"]]
        assert rows == [("math", 0.0), ("gsm8k", 0.0), ("own", 0.0)], "another set adds its own row"
        file.unlink()
        Path("data/test/own.jsonl").rename("data/test/own_test.jsonl")
        Path("data/test/test_index.json").write_text("{}")
        assert main([*words, "--data", "data/test", "--limit", "1"]) == 0
        rows = [(row["dataset"], row["metrics"]["problems"]) for row in json.loads(file.read_text())["datasets"]]
        assert sorted(rows) == [("gsm8k", 1), ("math", 1), ("own", 1)]
