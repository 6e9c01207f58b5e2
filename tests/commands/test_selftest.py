"""The self-test: a line without a GPU, every part on the CPU, and a failure that is reported."""

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.finished import as_options

from llm_as_judge.commands import selftest
from llm_as_judge.config.loading import load_config


def report_in(folder: Path) -> Any:
    return json.loads((folder / f"gpu/{platform.node()}.json").read_text())


def test_without_a_gpu_it_is_one_line(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = ["selftest", "--set", f"results_dir={tmp_path}"]
    assert cli(*command, status=2) == "" and cli.err.count("\n") == 1
    assert "--device cuda:0: " in cli.err and "--device cpu" in cli.err
    assert not list(tmp_path.iterdir())
    assert "the parts are doctor, tests, model, train" in cli.refused(*command, "--device=cpu", "--part=weather")


def test_a_failing_part_is_reported_with_why(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "gpu1.example.org")
    settings = ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1", f"results_dir={tmp_path}"]
    assert "FAILED" in cli("selftest", "--device=cpu", "--part=doctor", *as_options(settings), status=1)
    report = report_in(tmp_path)
    (failed,) = [part for part in report["parts"] if not part["ok"]]
    assert report["ok"] is False and failed["name"] == "doctor: executor" and "127.0.0.1:9" in failed["detail"]
    assert "| doctor: executor | fail | " in re.sub(" +", " ", (tmp_path / f"gpu/{platform.node()}.md").read_text())


def test_parts_find_the_checkout_and_what_the_user_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "added.py").write_text("")
    code = "import added, llm_as_judge, os; print(os.environ['PYTHONPATH'])"
    line = selftest._run([["-P", "-c", code]], tmp_path / "log", load_config("config/embedded.yaml"))
    assert line.endswith(f": {Path(selftest.__file__).parents[2]}{os.pathsep}{tmp_path}")


@pytest.mark.slow
def test_every_part_passes_on_a_cpu(tmp_path: Path, cli: CommandLine) -> None:
    report = cli.json("selftest", "--device", "cpu", "--set", f"results_dir={tmp_path}")
    assert report == report_in(tmp_path)
    details = {part["name"]: part["detail"] for part in report["parts"]}
    assert list(details)[-3:] == ["tests", "model", "train"] and report["versions"]["torch"]
    assert re.search(r"\d+ passed", details["tests"]) and "steps 5, training" in details["train"]
    assert "update: seconds" in details["model"]
