"""Scripts that run commands, and the whole pipeline on the embedded models."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from helpers.finished import run_settings

from llm_as_judge.commands.app import app, main

ROOT = Path(__file__).parents[2]
SETS = ("gsm8k", "hotpotqa", "humaneval", "math", "mbpp", "squad2")
STEP = "checkpoints/qwen25-7b/grpo_mixed/step_100"
TRAINING = Path("config/training.yaml")
#: What users type, the command it runs, and some of the options that the command reads.
LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("train.py --model qwen25-7b --device cuda:0", "train", {"model": "qwen25-7b", "device": "cuda:0"}),
    ("train.py --config config/embedded.yaml", "train", {"config": Path("config/embedded.yaml")}),
    ("train.py", "train", {"config": TRAINING}),
    ("scripts/download_datasets.py --datasets gsm8k,math", "data download", {"datasets": ["gsm8k,math"]}),
    ("scripts/process_datasets.py", "data process", {"split": "plan-c"}),
    ("scripts/process_datasets.py --seed 1", "data process", {"seed": 1}),
    (f"scripts/eval_6datasets.py --model qwen25-7b --checkpoint {STEP}", "evaluate",
     {"model": "qwen25-7b", "checkpoint": Path(STEP), "data": [Path("data/test")], "config": TRAINING}),
    ("scripts/eval_6datasets.py --data own.jsonl", "evaluate", {"data": [Path("own.jsonl")]}),
]  # fmt: skip


def options_of(words: list[str]) -> dict[str, Any]:
    """The options that the command line reads in ``words``."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("llm-as-judge", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    read: dict[str, Any] = context.params
    return read


def test_every_script_is_a_command_and_passes_its_exit_status_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(STEP).mkdir(parents=True)
    Path("data/test").mkdir(parents=True)
    for name in ("own.jsonl", "data/test/test_index.json", *(f"data/test/{name}_test.jsonl" for name in SETS)):
        Path(name).touch()
    given: list[str] = []

    def note(words: list[str]) -> int:
        given[:] = words
        return 7

    monkeypatch.setattr("llm_as_judge.commands.app.main", note)
    wrong = []
    for line, command, read in LINES:
        script, *options = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [script, *options])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        found = options_of(given)
        right = end.value.code == 7 and " ".join(given).startswith(command) and read.items() <= found.items()
        if not right:
            wrong.append((line, given, found))
    assert not wrong


def test_the_page_of_commands_names_existing_commands_and_all_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/using.md").read_text(encoding="utf-8")
    named = {line.strip() for line in re.findall(r"`llm-as-judge ([a-z]+(?: [a-z]+)?)[ `]", page)}
    assert len(named) >= 6
    for command in named:
        assert main([*command.split(), "--help"]) == 0, command
    here = {str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.py"), *ROOT.glob("scripts/*_datasets.py"))}
    assert here - {"setup.py"} and not [name for name in here - {"setup.py"} if name not in page]


def test_evaluating_without_test_sets_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/eval_6datasets.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2 and "data/test" in done.stderr and "does not exist" in done.stderr


@pytest.mark.slow
def test_the_whole_pipeline_on_the_embedded_models(tmp_path: Path, samples: Path, address: str) -> None:
    """Process, train two steps, evaluate all test sets; then again with both skip flags."""
    small = {"num_return_sequences_in_group": 2, "plan_matrix": "false", "baselines": "false", "eval_every": 0}
    settings = run_settings(tmp_path, address, rollout_batch_size=2, **small)
    own = [word for setting in settings if not setting.startswith("max_steps") for word in ("--set", setting)]
    words = ["--model", "nano", "--device", "cpu", "--sample", "--raw", samples, "--data", tmp_path / "data", *own]

    def run(*more: str) -> str:
        done = subprocess.run(
            [ROOT / "scripts/run_full_pipeline.sh", *map(str, words), *more], capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = run("--skip-download", "--limit", "2")
    stages = [line for line in printed.splitlines() if line.startswith("== ")]
    assert stages == ["== process", "== train", "== evaluate"]
    results = json.loads((tmp_path / "results/evaluation/nano_results.json").read_text("utf-8"))
    # As jq '.datasets[] | {name: .dataset, accuracy: .metrics.accuracy}' would print it.
    rows = {row["dataset"]: row["metrics"]["accuracy"] for row in results["datasets"]}
    assert sorted(rows) == sorted(SETS)
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in rows.values())
    assert all(row["checkpoint"].endswith("step_2") for row in results["datasets"])
    first = (tmp_path / "data/mixed/train_mixed.jsonl").stat()
    printed = run("--skip-download", "--skip-process", "--steps", "1", "--limit", "1")
    assert "== process" not in printed and (tmp_path / "data/mixed/train_mixed.jsonl").stat() == first
    assert list((tmp_path / "checkpoints").rglob("step_1/adapter_model.safetensors"))


@pytest.mark.slow
def test_several_files_are_one_json(
    tmp_path: Path, samples: Path, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [samples / "gsm8k/test.jsonl", samples / "math/MATH/test"]
    data = [word for file in files for word in ("--data", str(file))]
    server = ["--set", f"executor.base_url={address}", "--set", "judge.mode=rules"]
    assert main(["evaluate", *data, "--untrained", "--limit", "1", "--json", *server]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["dataset"] for row in found["datasets"]] == ["gsm8k", "math"]
    assert found["usage"]["executor"]["calls"] >= 2
