"""A run stops at its budget with a checkpoint, and continues with a larger one."""

import asyncio
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED, as_options, run_settings

from llm_as_judge.assembly.budget import budget
from llm_as_judge.assembly.policy import newest_checkpoint
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import BudgetConfig
from llm_as_judge.errors import BudgetSpent
from llm_as_judge.events import RunEvent, UsageEvent
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.llm.client import Usage
from llm_as_judge.runlog import EventLog, read_events


@pytest.mark.slow
def test_a_spent_budget_stops_with_a_checkpoint_and_a_larger_one_continues(
    tmp_path: Path, address: str, cli: CommandLine
) -> None:
    small = {"max_steps": 4, "rollout_batch_size": 4, "save_every": 0, "eval_every": 0, "eval_problems": 2}
    # More than the two requests that check the models, less than the first step's twelve rollouts.
    small |= {"executor.max_tokens": 160, "judge.max_tokens": 160, "lookahead": 0}
    settings = run_settings(tmp_path, address, **small)
    config = load_config(EMBEDDED, [*settings, "budget.max_tokens=400"])
    with pytest.raises(BudgetSpent, match=r"stopped after step 1, which is saved: budget\.max_tokens=400 is spent"):
        asyncio.run(GRPOTrainer(config=config).train())
    newest = newest_checkpoint(config)
    assert newest is not None and newest.name == "step_1"
    command = ["train", *as_options([*settings, "evaluation.plan_matrix=false"]), "--resume"]
    error = cli.refused(*command, "--set", "budget.max_tokens=400")
    assert "stopped after step 1" in error, "what earlier sessions took counts"
    cli(*command, "--set", "budget.max_tokens=10000000", "--max-steps", "2")
    log = read_events(tmp_path / "logs/nano/grpo_mixed.jsonl")
    assert [event["step"] for event in log if event["kind"] == "step"] == [1, 2]


def test_each_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        for session in range(2):
            log.log(RunEvent())
            clock[0] += 1800
            log.log(UsageEvent(models={"executor": Usage(1, 600, 100, 2.0), "judge": Usage(1, 50, 50, 0.5)}))
            clock[0] += 10_000 * (session + 1)  # between sessions
    now = {"executor": Usage(1, 10, 10, 1.0)}

    def spent(**limits: float) -> str:
        check = budget(BudgetConfig(**limits), path, lambda: now)
        clock[0] += 1800
        return check()

    assert spent() == ""
    assert spent(max_cost=6.1, max_tokens=1621, max_hours=1.51) == ""
    assert "budget.max_cost=6 is spent (6)" in spent(max_cost=6.0)
    assert "budget.max_tokens=1620 is spent (1620)" in spent(max_tokens=1620)
    assert "budget.max_hours=1.5 is spent (1.5)" in spent(max_hours=1.5) and "--resume" in spent(max_hours=1.5)
