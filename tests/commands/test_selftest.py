"""The self-test: a line without a GPU, every part on the CPU, and a failure that is reported."""

import json
import platform
import re
from pathlib import Path

import pytest

from llm_as_judge.commands.app import main


def report_in(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / f"gpu/{platform.node()}.json").read_text())
    return found


def test_without_a_gpu_it_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["selftest", "--set", f"results_dir={tmp_path}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "--device cuda:0: " in printed.err and "--device cpu" in printed.err
    assert not list(tmp_path.iterdir())
    assert main(["selftest", "--device", "cpu", "--part", "weather", "--set", f"results_dir={tmp_path}"]) == 2
    assert "the parts are doctor, tests, model, train" in capsys.readouterr().err


def test_a_part_that_fails_is_reported_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "gpu1.example.org")
    settings = ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1", f"results_dir={tmp_path}"]
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["selftest", "--device", "cpu", "--part", "doctor", *words]) == 1
    assert "FAILED" in capsys.readouterr().out
    report = report_in(tmp_path)
    failed = [part for part in report["parts"] if not part["ok"]]  # type: ignore[attr-defined]
    assert report["ok"] is False and [part["name"] for part in failed] == ["doctor: executor"]
    assert "127.0.0.1:9" in failed[0]["detail"]
    assert "| doctor: executor | fail | " in (tmp_path / f"gpu/{platform.node()}.md").read_text()


@pytest.mark.slow
def test_every_part_passes_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--device", "cpu", "--set", f"results_dir={tmp_path}", "--json"]) == 0
    report = report_in(tmp_path)
    assert json.loads(capsys.readouterr().out) == report
    details = {part["name"]: part["detail"] for part in report["parts"]}  # type: ignore[attr-defined]
    assert list(details)[-3:] == ["tests", "model", "train"] and report["versions"]["torch"]  # type: ignore[index]
    assert re.search(r"\d+ passed", details["tests"]) and "steps 5, training" in details["train"]
    assert "update: seconds" in details["model"]
