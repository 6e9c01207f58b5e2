"""``init``: the example is a task that trains at once, with its own verdict; nothing is overwritten."""

import json
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import as_options
from helpers.processes import ROOT
from helpers.run_logs import read_rollouts

from llm_as_judge.config.loading import load_config
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rewards.custom import load_rewards

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
