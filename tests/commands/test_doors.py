"""The scripts that stand for commands, by the lines that people type; and the whole pipeline on the embedded models."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from llm_as_judge.commands.app import app, main

ROOT = Path(__file__).parents[2]
SIX = ("gsm8k", "hotpotqa", "humaneval", "math", "mbpp", "squad2")


def understood(words: list[str]) -> dict[str, Any]:
    """The options that the command line reads in ``words``; raises where it would refuse them."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("llm-as-judge", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    read: dict[str, Any] = context.params
    return read


@pytest.mark.parametrize(
    ("line", "command", "read"),
    [
        ("train.py --model qwen25-7b --device cuda:0", "train", {"model": "qwen25-7b", "device": "cuda:0"}),
        ("train.py --config config/training.yaml --model qwen25-7b", "train", {"config": Path("config/training.yaml")}),
        ("train.py --config config/embedded.yaml", "train", {"config": Path("config/embedded.yaml")}),
        ("train.py", "train", {"config": Path("config/training.yaml")}),
        ("scripts/download_datasets.py", "data download", {}),
        ("scripts/download_datasets.py --datasets gsm8k,math", "data download", {"datasets": ["gsm8k,math"]}),
        ("scripts/process_datasets.py", "data process", {"split": "plan-c"}),
        ("scripts/process_datasets.py --seed 1", "data process", {"seed": 1}),
        (
            "scripts/eval_6datasets.py --model qwen25-7b --checkpoint checkpoints/qwen25-7b/grpo_mixed/step_100",
            "evaluate",
            {
                "model": "qwen25-7b",
                "checkpoint": Path("checkpoints/qwen25-7b/grpo_mixed/step_100"),
                "data": [Path("data/test")],
                "config": Path("config/training.yaml"),
            },
        ),
        ("scripts/eval_6datasets.py --data own.jsonl", "evaluate", {"data": [Path("own.jsonl")]}),
    ],
)
def test_every_line_is_a_command(
    line: str, command: str, read: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checkpoints/qwen25-7b/grpo_mixed/step_100").mkdir(parents=True)
    Path("data/test").mkdir(parents=True)
    for name in ("own.jsonl", "data/test/test_index.json", *(f"data/test/{name}_test.jsonl" for name in SIX)):
        Path(name).touch()
    given: list[list[str]] = []

    def note(words: list[str]) -> int:
        given.append(words)
        return 7

    script, *options = shlex.split(line)
    monkeypatch.setattr("llm_as_judge.commands.app.main", note)
    monkeypatch.setattr(sys, "argv", [script, *options])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert end.value.code == 7, "the exit status is the command's"
    assert " ".join(given[0][: len(command.split())]) == command
    found = understood(given[0])
    assert {name: found[name] for name in read} == read


def test_the_page_of_commands_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
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


def test_the_whole_pipeline_on_the_embedded_models(tmp_path: Path, samples: Path) -> None:
    """Process, train two steps, evaluate all test sets; then again with both skip flags."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{s.getsockname()[1]}/v1"
    settings = {
        "output_dir": tmp_path / "checkpoints", "results_dir": tmp_path / "results", "log_dir": tmp_path / "logs",
        "executor.base_url": address, "judge.base_url": address, "rollout_batch_size": 2,
        "num_return_sequences_in_group": 2, "plan_matrix": "false", "baselines": "false",
    }  # fmt: skip
    own = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words = ["--model", "nano", "--device", "cpu", "--sample", "--raw", samples, "--data", tmp_path / "data", *own]

    def run(*more: str) -> str:
        done = subprocess.run(
            [ROOT / "scripts/run_full_pipeline.sh", *map(str, words), *more], capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told = run("--skip-download", "--limit", "2")
    assert [line for line in told.splitlines() if line.startswith("== ")] == ["== process", "== train", "== evaluate"]
    results = json.loads((tmp_path / "results/evaluation/nano_results.json").read_text("utf-8"))
    # As jq '.datasets[] | {name: .dataset, accuracy: .metrics.accuracy}' would print it.
    rows = [{"name": row["dataset"], "accuracy": row["metrics"]["accuracy"]} for row in results["datasets"]]
    assert sorted(row["name"] for row in rows) == sorted(SIX)
    assert all(row["accuracy"] is not None and 0 <= row["accuracy"] <= 1 for row in rows)
    assert all(row["checkpoint"].endswith("step_2") for row in results["datasets"])
    first = (tmp_path / "data/mixed/train_mixed.jsonl").stat()
    told = run("--skip-download", "--skip-process", "--steps", "1", "--limit", "1")
    assert "== process" not in told and (tmp_path / "data/mixed/train_mixed.jsonl").stat() == first
    assert list((tmp_path / "checkpoints").rglob("step_1/adapter_model.safetensors"))


def test_several_files_are_told_in_one_json(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"executor.base_url=http://127.0.0.1:{s.getsockname()[1]}/v1"
    files = [samples / "gsm8k/test.jsonl", samples / "math/MATH/test"]
    data = [word for file in files for word in ("--data", str(file))]
    assert (
        main(
            ["evaluate", *data, "--untrained", "--limit", "1", "--json", "--set", address, "--set", "judge.mode=rules"]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [row["dataset"] for row in told["datasets"]] == ["gsm8k", "math"]
    assert told["usage"]["executor"]["calls"] >= 2
