"""What somebody new runs first: init, doctor, messages with a cure."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import FinishedRun, as_options
from helpers.processes import ROOT, program
from helpers.run_logs import read_rollouts
from helpers.tables import tables

from llm_as_judge.commands.cli import file_problem
from llm_as_judge.commands.doctor import checks_of, run_check
from llm_as_judge.config.loading import load_config
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rewards.custom import load_rewards

PROGRAMS = tables(__file__)


def test_a_command_whose_output_nobody_reads_is_silent(here: Path, finished_run: FinishedRun) -> None:
    wrong = []
    for words in (["--help"], ["plan", "--json"], ["analyze", finished_run.log]):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            command = [sys.executable, "-m", "llm_as_judge", *map(str, words)]
            done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        finally:
            os.close(writer)
        if (done.returncode, done.stderr) != (141, ""):
            wrong.append((words, done.returncode, done.stderr))
    assert not wrong


# Doctor


def test_a_model_is_ready_only_in_the_cache_or_on_a_hub_that_answers(here: Path) -> None:
    def asked() -> list[object]:
        places = {"HF_HOME": here, "HF_ENDPOINT": "http://127.0.0.1:1", "HF_HUB_OFFLINE": "0"}
        done = program(sys.executable, "-c", PROGRAMS["MODEL_LINE"], **places)
        assert done.returncode == 0, done.stderr
        found: list[object] = json.loads(done.stdout)
        return found

    ok, detail = asked()
    assert not ok and "some/model: neither" in str(detail) and "HF_TOKEN" in str(detail)
    cache = here / "hub/models--some--model"
    for name in ("refs", "snapshots/abc"):
        (cache / name).mkdir(parents=True)
    (cache / "refs/main").write_text("abc")
    (cache / "snapshots/abc/config.json").write_text("{}")
    assert not asked()[0], "a configuration alone is no model"
    (cache / "snapshots/abc/model.safetensors").touch()
    ok, detail = asked()
    assert ok and "in the cache" in str(detail)


def test_a_folder_is_ready_if_it_takes_files_and_none_is_left_behind(here: Path) -> None:
    done = program(sys.executable, "-c", PROGRAMS["FOLDER_LINE"])
    assert done.returncode == 0, done.stderr
    before, free, after, full = json.loads(done.stdout)
    assert before and "GB free" in free and not list(here.iterdir())
    assert not after and full.startswith("a/b: file too large; make room there") and "--set output_dir=DIR" in full
    Path("taken").touch()
    check = run_check("", checks_of(load_config(None, ["output_dir=taken/x"]))["folder taken/x"])
    assert not check.ok and "taken/x: not a directory; make room there" in check.detail


# Cures


def test_a_full_or_protected_place_has_a_cure_that_the_command_has() -> None:
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES):
        error = OSError(number, "", "/place")
        shown = {command: str(file_problem(error, command)) for command in ("train", "export", "report", "data")}
        assert all(text.startswith("/place: ") and "make room there" in text for text in shown.values())
        assert [command for command, text in shown.items() if "output_dir" in text] == ["train"]
        assert "llm-as-judge export DIR" in shown["export"] and "llm-as-judge report LOG" in shown["report"]
    full = str(file_problem(OSError(errno.ENOSPC, ""), "train"))
    assert full.startswith("standard output: ") and "output_dir" not in full, "no setting moves it"
    assert file_problem(OSError("of a library")) is None and file_problem(ValueError("x")) is None


def test_scripts_start_under_sh_and_name_what_is_missing(here: Path) -> None:
    done = program("sh", ROOT / "scripts/run_full_pipeline.sh", "--help")
    assert done.returncode == 0 and done.stdout.startswith("Download, process, train, evaluate"), done.stderr
    python = here / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = program("sh", ROOT / "scripts/launch_vllm.sh", PYTHON=python)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {python} cannot import vllm; install it")


EXAMPLE = ROOT / "examples/own_verdict"


def test_init_writes_what_trains(here: Path, cli: CommandLine, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = cli("init", "my task")
    files = {file.name for file in EXAMPLE.iterdir() if file.is_file()}
    assert files == {"config.yaml", "problems.jsonl", "heldout.jsonl", "judge.py", "operators.py"}
    assert {file.name for file in Path("my task").iterdir()} == files
    assert "cd 'my task' && llm-as-judge train --config config.yaml" in out
    assert "exists and is not an empty folder" in cli.refused("init", "my task")
    monkeypatch.chdir("my task")
    fewer = [f"executor.base_url={address}", "max_steps=1", "eval_problems=2", "evaluation.baselines=none"]
    out = cli("train", "--config", "config.yaml", *as_options(fewer))
    assert "mean score" in out and "step 1/1" in out
    rollouts = [event.rollout for event in read_rollouts("logs/nano/own_verdict.jsonl")]
    judged = [rollout.verdict for rollout in rollouts if rollout.valid]
    assert judged and all(verdict.tier == "function" and verdict.score in (0, 0.5, 1) for verdict in judged)
    assert Path("checkpoints/nano/own_verdict/step_1/adapter_model.safetensors").exists()


def test_what_the_example_has_in_comments_works(here: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("init", "task")
    commented = Path("task/config.yaml").read_text(encoding="utf-8")
    for line in ("operators: [", "functions: {"):
        assert f"# {line}" in commented
        commented = commented.replace(f"# {line}", line)
    Path("task/config.yaml").write_text(commented, encoding="utf-8")
    monkeypatch.chdir("task")
    config = load_config("config.yaml")
    assert "Twice" in load_operators(config.workflow.operators)
    rewards = load_rewards(config.reward, 1.0)
    assert rewards is not None and [name.endswith("judge.py:brevity") for name in rewards.functions] == [True]
    lines = [line for name in ("problems", "heldout") for line in Path(f"{name}.jsonl").read_text("utf-8").splitlines()]
    assert len({json.loads(line)["problem"] for line in lines}) == len(lines) == 32
