"""Scripts that run commands, and the whole pipeline on the embedded models."""

import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from helpers.finished import run_settings

from llm_as_judge.commands.app import app

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


@pytest.mark.slow
def test_the_whole_pipeline_on_the_embedded_models(tmp_path: Path, samples: Path, address: str) -> None:
    """Process, train two steps, evaluate all test sets."""
    small = {"num_return_sequences_in_group": 2, "plan_matrix": "false", "baselines": "false", "eval_every": 0}
    settings = run_settings(tmp_path, address, rollout_batch_size=2, **small)
    own = [word for setting in settings if not setting.startswith("max_steps") for word in ("--set", setting)]
    words = ["--model", "nano", "--device", "cpu", "--sample", "--raw", samples, "--data", tmp_path / "data", *own]

    done = subprocess.run(
        [ROOT / "scripts/run_full_pipeline.sh", *map(str, words), "--skip-download", "--limit", "2"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    stages = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert stages == ["== process", "== train", "== evaluate"]
    results = json.loads((tmp_path / "results/evaluation/nano_results.json").read_text("utf-8"))
    # As jq '.datasets[] | {name: .dataset, accuracy: .metrics.accuracy}' would print it.
    rows = {row["dataset"]: row["metrics"]["accuracy"] for row in results["datasets"]}
    assert sorted(rows) == sorted(SETS)
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in rows.values())
    assert all(row["checkpoint"].endswith("step_2") for row in results["datasets"])
