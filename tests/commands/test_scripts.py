"""Scripts and the self-test."""

import itertools
import json
import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from helpers.cli import CommandLine
from helpers.finished import as_options, run_settings
from helpers.processes import ROOT, program
from helpers.tables import tables

from llm_as_judge.commands import selftest
from llm_as_judge.commands.app import app
from llm_as_judge.config.loading import load_config

TABLES = tables(__file__)
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


def test_every_script_is_a_command_and_passes_its_exit_status_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(STEP).mkdir(parents=True)
    Path("data/test").mkdir(parents=True)
    for name in ("own.jsonl", *(f"data/test/{name}_test.jsonl" for name in SETS)):
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
        if end.value.code != 7 or not " ".join(given).startswith(command) or not read.items() <= found.items():
            wrong.append((line, given, found))
    assert not wrong


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def run_script(name: str, *words: object, **environment: object) -> subprocess.CompletedProcess[str]:
    return program(ROOT / "scripts" / name, *words, **environment)


def test_the_skypilot_task_is_shell_and_runs_the_command_line_as_it_is(tmp_path: Path) -> None:
    task = yaml.safe_load((ROOT / "scripts/skypilot.yaml").read_text(encoding="utf-8"))
    assert set(task) == {"name", "resources", "workdir", "envs", "secrets", "setup", "run"}
    (tmp_path / ".venv/bin").mkdir(parents=True)
    executable(tmp_path / ".venv/bin/torchrun", '#!/bin/sh\necho "$@"\n')
    script = (
        f"cd {tmp_path}; set -eu; export SKYPILOT_NUM_GPUS_PER_NODE=2 CONFIG={task['envs']['CONFIG']}\n{task['run']}"
    )
    assert program("bash", "-n", "-c", task["setup"]).returncode == 0
    first = program("bash", "-c", script).stdout.split()
    (tmp_path / "checkpoints/qwen25-7b/grpo_mixed/step_1").mkdir(parents=True)
    assert program("bash", "-c", script).stdout.split() == [*first, "--resume"]
    assert first == "--nproc-per-node 2 -m llm_as_judge train --config config/training.yaml".split()


# The whole pipeline


def test_the_pipelines_steps_run_in_order_and_every_test_set_is_evaluated(tmp_path: Path) -> None:
    places = [f"output_dir={tmp_path}/check points", f"results_dir={tmp_path}/results"]
    words = ["--model", "nano", "--device", "cpu", "--sample", "--raw", "RAW", "--data", tmp_path / "data"]
    python = executable(tmp_path / "python", TABLES["PYTHON"].format(python=sys.executable, log=str(tmp_path / "log")))
    done = run_script("run_full_pipeline.sh", *words, *as_options(places), PYTHON=python)
    assert done.returncode == 0, done.stderr
    commands = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [" ".join(words[:2]) for words in commands] == [
        "data download", "data process", "train --config", "evaluate --config",
    ]  # fmt: skip
    _, process, train, evaluate = commands
    assert process[2:6] == ["--raw", "RAW", "--out", f"{tmp_path}/data"] and "--any-split" in process
    for words in (train, evaluate):
        for side in ("train", "test"):
            assert f"data.{side}_dataset={tmp_path}/data/mixed/{side}_mixed.jsonl" in words
        assert "--model nano" in " ".join(words) and "--device cpu" in " ".join(words)
        assert "config/embedded.yaml" in words and places[0] in words
    assert "--max-steps 2" in " ".join(train) and "--limit 4" in " ".join(evaluate)
    assert "--checkpoint" not in evaluate and "--untrained" not in evaluate  # the run's own newest one
    files = [file for word, file in itertools.pairwise(evaluate) if word == "--data"]
    assert files == [f"{tmp_path}/data/test/{name}_test.jsonl" for name in ("gsm8k", "mbpp")]


@pytest.mark.slow
def test_the_whole_pipeline_on_the_embedded_models(tmp_path: Path, samples: Path, address: str) -> None:
    """Process, train two steps, evaluate all test sets."""
    small = {"num_return_sequences_in_group": 2, "baselines": "none", "eval_every": 0}
    settings = run_settings(tmp_path, address, rollout_batch_size=2, **small)
    own = as_options([setting for setting in settings if not setting.startswith(("max_steps", "eval_problems"))])
    words = ["--model", "nano", "--device", "cpu", "--sample", "--raw", samples, "--data", tmp_path / "data", *own]
    done = run_script("run_full_pipeline.sh", *words, "--skip-download", "--limit", "2", PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    stages = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert stages == ["== process", "== train", "== evaluate"]
    results = json.loads((tmp_path / "results/evaluation/nano_results.json").read_text("utf-8"))
    # As jq '.datasets[] | {name: .dataset, accuracy: .metrics.accuracy}' would print it.
    rows = {row["dataset"]: row["metrics"]["accuracy"] for row in results["datasets"]}
    assert sorted(rows) == sorted(SETS)
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in rows.values())
    assert all(row["checkpoint"].endswith("step_2") for row in results["datasets"])


# SLURM, with stand-ins for its commands


def submit(folder: Path, nodes: str, gpus: int, *options: str, fails: str = "") -> tuple[list[str], str, int]:
    """Each call of srun, the errors, and the exit status."""
    for name, text in TABLES["STAND_INS"].items():
        executable(folder / name, f"#!/bin/sh\n{text}\n")
    calls = folder / "calls"
    for old in (calls, folder / "calls.pid"):
        old.unlink(missing_ok=True)
    here = {
        "PATH": f"{folder}:{os.environ['PATH']}", "NODES": nodes, "CALLS": calls, "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_JOB_NODELIST": "n[1-9]", "SLURM_JOB_ID": 7, "SLURM_SUBMIT_DIR": folder, "FAILS": fails,
    }  # fmt: skip
    unset = dict.fromkeys(("PYTHON", "CUDA_VISIBLE_DEVICES", "EXECUTOR_GPUS", "EXECUTOR_URL", "VLLM_API_KEY"), "")
    done = run_script("slurm_train.sh", *options, **unset, **here)
    return calls.read_text().splitlines() if calls.exists() else [], done.stderr, done.returncode


def test_the_last_node_serves_the_executor_and_the_others_train(tmp_path: Path) -> None:
    (executor, training), errors, status = submit(tmp_path, "n1 n2 n3", 4, "--config", "c.yaml", "--resume")
    assert status == 0, errors
    assert "--nodelist=n3 scripts/launch_vllm.sh executor" in executor
    assert executor.startswith("GPUS=0,1,2,3 HOST=0.0.0.0 ")
    assert training.startswith("GPUS=0,1,2,3 ") and " URL=http://n3:8002/v1 " in training
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n1,n2 .venv/bin/python" in training
    assert "-m torch.distributed.run --nnodes 2 --nproc-per-node 4 " in training
    assert "--rdzv-endpoint n1:29500 -m llm_as_judge train " in training
    assert training.endswith(" --set generation.engine=vllm --config c.yaml --resume")
    keys = {call.partition("KEY=")[2].split()[0] for call in (executor, training)}
    assert len(keys) == 1 and len(keys.pop()) == 32, "one key, of this job alone"
    assert not Path(f"/proc/{(tmp_path / 'calls.pid').read_text().strip()}").exists(), "the executor ends with the job"
    header = (ROOT / "scripts/slurm_train.sh").read_text(encoding="utf-8")
    notice = int(header.partition("--signal=TERM@")[2].split()[0])
    assert 60 < int(training.partition("STOP=")[2].split()[0]) < notice, "a running step may end before the kill"


def test_a_single_node_gives_its_last_gpu_to_the_executor_and_vllm_its_own_environment(tmp_path: Path) -> None:
    own = tmp_path / ".venv-vllm/bin/python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    (executor, training), errors, status = submit(tmp_path, "n1", 4)
    assert status == 0, errors
    assert executor.startswith("GPUS=3 ") and training.startswith("GPUS=0,1,2 ")
    assert "--nnodes 1 --nproc-per-node 3 " in training and " URL=http://n1:8002/v1 " in training
    assert " PYTHON=.venv-vllm/bin/python " in executor
    assert " --set engine.python=.venv-vllm/bin/python --set generation.engine=vllm" in training


def test_a_job_that_cannot_start_says_why(tmp_path: Path) -> None:
    _, errors, status = submit(tmp_path, "n1", 1)
    assert status and "one GPU: the executor fills it; ask for two, or give EXECUTOR_URL" in errors
    calls, errors, status = submit(tmp_path, "n1", 2, fails="1")
    assert status and "does not answer at http://n1:8002/v1; see logs/slurm_7_executor.log" in errors
    assert not any("torch.distributed.run" in call for call in calls)


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
