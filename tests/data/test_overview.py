"""``data inspect``: right counts and lengths, a chart, and an error for an incomplete folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.samples import write_lines

from llm_as_judge.commands.app import main
from llm_as_judge.data.overview import inspect_folder
from llm_as_judge.data.process import Job, process
from llm_as_judge.data.settings import load_settings
from llm_as_judge.errors import DataError

CONFIG = Path(__file__).parents[2] / "config/dataset.yaml"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    records = [{"question": "x" * (i + 1) + "?", "answer": f"#### {i}"} for i in range(12)]
    write_lines(tmp_path / "raw/gsm8k/train.jsonl", records)
    settings = load_settings(CONFIG, {"datasets": ["gsm8k"], "train_size": 30, "test_size": 4})
    process(Job(settings, tmp_path / "raw", tmp_path / "out"))
    return tmp_path / "out"


def test_counts_repetition_and_lengths_are_right(out: Path) -> None:
    result = inspect_folder(out, examples=2)
    train, test = result["sides"]["train"]["gsm8k"], result["sides"]["test"]["gsm8k"]
    assert (train["lines"], train["unique"], train["repetition"]) == (30, 10, 3.0)
    assert (test["lines"], test["unique"]) == (4, 2)
    assert len(train["examples"]) == 2 and train["examples"][0] != train["examples"][1]
    lengths = sorted(len(json.loads(line)["problem"]) for line in (out / "mixed/train_mixed.jsonl").open())
    assert train["length"] == {"median": lengths[15], "p95": lengths[28], "max": lengths[-1]}


def test_the_command_writes_a_picture(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    assert main(["data", "inspect", "--out", str(out), "--examples", "0"]) == 0
    assert "gsm8k" in capsys.readouterr().out
    assert main(["data", "inspect", "--file", str(out / "test/gsm8k_test.jsonl")]) == 0


def test_an_incomplete_folder_is_refused(out: Path) -> None:
    path = out / "mixed/train_mixed.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(DataError, match=r"train_mixed\.jsonl: is not the file"):
        inspect_folder(out)
    path.write_bytes(content)
    inspect_folder(out)
    info = out / "mixed/info.json"
    info.write_text(info.read_text()[:100])
    with pytest.raises(DataError, match="cannot be read"):
        inspect_folder(out)
    info.unlink()
    with pytest.raises(DataError, match="no such file"):
        inspect_folder(out)
