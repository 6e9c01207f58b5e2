"""``monitor`` and ``analyze``: figures from the log of a running, resumed or finished run."""

import io
import math
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.rollouts import problem, rollout
from helpers.run_logs import write
from rich.console import Console

from llm_as_judge.evaluation.analysis import DIMENSIONS, Analysis, analyze_log
from llm_as_judge.events import Contrast, EvalEvent, Event, RolloutEvent, RunEvent, StepReport, UsageEvent
from llm_as_judge.runlog import LogReader
from llm_as_judge.types import Exchange, Execution, Finding, OperatorCall, Reward, Verdict
from llm_as_judge.views.watch import curve, look_at_log, look_panel


def step(number: int, **more: Any) -> StepReport:
    fields: dict[str, Any] = {
        "step": number, "reward_mean": float(number), "accuracy": 0.5, "valid_rate": 0.75, "groups": 4, "rollouts": 8,
        "skipped_groups": 1, "unscored": 2, "executor_tokens": 90.0, "completion_tokens": 10.0,
        "domain_accuracy": {"math": 0.25}, "seconds": {"generate": 1.0, "execute": 3.0, "update": 1.0},
    }  # fmt: skip
    return StepReport(**{**fields, **more})


def run(id: str = "run-1", resumed_from: str | None = None) -> RunEvent:
    return RunEvent(id=id, config="training:\n  max_steps: 20\n", resumed_from=resumed_from)


def usage(cost: float) -> UsageEvent:
    return UsageEvent(models={"executor": {"calls": 1, "cost": cost}, "judge": {"calls": 1, "cost": 1.0}})


def test_figures_are_means_over_the_last_steps(tmp_path: Path) -> None:
    steps = [step(n, time=100.0 + 5 * n) for n in range(1, 13)]
    path = write(tmp_path / "run.jsonl", run(), *steps, usage(2.5), EvalEvent(step=8, scores={"overall": 0.625}))
    found = look_at_log(LogReader(path, rollouts=False))
    assert (found.run, found.step, found.total, found.done, found.left_s) == ("run-1", 12, 20, False, 8 * 5.0)
    assert found.figures["reward"].startswith(f"{sum(range(3, 13)) / 10:.2f}  ▁")
    assert {**found.figures, "reward": ""} == {
        "reward": "", "right": "50 %   math 25", "valid": "75 %",
        "contrast": "75 % of the groups, 240 executor tokens for each",
        "unscored": "24 rollouts of the run", "tokens/s": "200 of policy and executor in rollouts", "cost": "3.5",
        "seconds a step": "5.0   generate 1.0  execute 3.0  update 1.0", "validation": "step 8: overall 62",
    }  # fmt: skip
    # The last step used a batch that was sampled in the one before.
    path = write(tmp_path / "ahead.jsonl", run(), step(1), step(2, seconds={"execute": 1.0, "update": 1.0}))
    found = look_at_log(LogReader(path, rollouts=False))
    assert found.figures["tokens/s"].startswith("320 ")  # 1,600 in 5 s of rollouts
    assert found.figures["seconds a step"] == "3.5   generate 0.5  execute 2.0  update 1.0"
    assert curve([1.0]) == "" and curve([1.0, math.nan, 3.0]) == "▁█"
    assert len(curve([float(n) for n in range(999)])) <= 60


def test_it_follows_the_log_through_a_resumed_session(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    reader = LogReader(path, rollouts=False)
    assert (look_at_log(reader).step, look_at_log(reader).total) == (0, 0)
    write(path, run(), *(step(n) for n in (1, 2, 3)), usage(4.0))
    assert look_at_log(reader).step == 3
    write(path, run(resumed_from="checkpoints/step_2"), step(3, unscored=0, reward_mean=math.nan), usage(1.0))
    found = look_at_log(reader)
    assert (found.step, found.figures["unscored"][0], found.figures["cost"]) == (3, "4", "7")
    assert found.figures["reward"].startswith("1.50")


def test_the_panel_fits_every_terminal_and_shows_hostile_text(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run("[red]x"), *(step(n) for n in range(1, 90)))
    write(path, EvalEvent(step=80, scores={"[b]overall": 0.625, "math": 0.5}))
    for width in (40, 80, 200):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(look_panel(look_at_log(LogReader(path))))
        printed = console.export_text()
        assert max(map(len, printed.splitlines())) <= width
    assert "[red]x" in printed and "step 89/20" in printed and "step 80: [b]overall 62  math 50" in printed


def test_without_a_terminal_it_shows_the_newest_run_once(here: Path, cli: CommandLine) -> None:
    assert "no such log" in cli.refused("monitor")
    for age, name in ((100, "old"), (0, "new")):
        file = write(Path(f"logs/nano/{name}.jsonl"), run(name), step(4))
        os.utime(file, (time.time() - age,) * 2)
    printed = cli("monitor")
    assert "─ new ─" in printed and "step 4/20" in printed
    Path("notes.txt").write_text("some\nnotes\n")
    assert "run 'notes.txt': the file is not the log of a run" in cli.refused("monitor", "notes.txt")


def test_on_a_terminal_it_follows_the_run_to_its_end(tmp_path: Path, root: Path) -> None:
    path = write(tmp_path / "run.jsonl", run(), step(18))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "llm_as_judge", "monitor", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown, written, deadline = b"", 18, time.monotonic() + 180
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
            if f"step {written}/20".encode() in shown and written < 20:
                written += 1
                write(path, step(written))
        assert process.wait(60) == 0
    os.close(ours)
    assert all(f"step {n}/20".encode() in shown for n in (18, 19, 20))


def ran(step: int = 1, correct: bool | None = True, reward: float | None = 8.0, **changes: Any) -> RolloutEvent:
    own: dict[str, Any] = {
        "domain": "math", "dataset": "gsm8k", "calls": ["Custom"], "tokens": 100, "reason": "", "lint": [],
        "outcome": "finished", "error": "", "shape": "Custom", "executor": "", **changes,
    }  # fmt: skip
    paid = Exchange("", "", "stop", own["tokens"], 0, 0.5, 0.0)
    calls = tuple(OperatorCall(n, {}, {}, (paid,) * (n == "Custom"), executor=own["executor"]) for n in own["calls"])
    findings = tuple(Finding(code, "", 1, code == "W204") for code in own["lint"])
    execution = Execution(own["outcome"], None, calls, own["error"], findings=findings, shape=own["shape"])
    of, verdict = problem("p", own["domain"], own["dataset"]), Verdict(correct, "rules", own["reason"])
    done = replace(rollout(of, correct), execution=execution, verdict=verdict, reward=Reward(reward))
    return RolloutEvent(step=step, rollout=done)


def report(step: int) -> StepReport:
    seconds = {"generate": 2.0, "update": 3.0}
    counts = {"groups": 4, "skipped_groups": 1, "rollouts": 8, "executor_tokens": 90.0}
    return StepReport(step=step, **counts, kl=0.5, entropy=1.0, seconds=seconds)  # type: ignore[arg-type]


def logged(path: Path, *events: Event) -> Analysis:
    return analyze_log(write(path, *events))


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    found = logged(
        tmp_path / "run.jsonl", ran(),
        ran(correct=False, reward=-2.0, tokens=300, domain="qa", dataset="", shape=""),
        ran(outcome="invalid", correct=False, reward=-5.0, lint=["W205", "W204"], calls=[]),
        ran(outcome="raised", correct=False, reward=-5.0, error="ValueError: 12 is odd\nmore"),
        ran(outcome="fault", correct=None, reward=None, error="ProviderError: http://x 503"),
        ran(correct=None, reward=None, reason="no verdict in 512 tokens", calls=["Custom", "Test"]), report(1),
    )  # fmt: skip
    total = found.total
    assert (total.rollouts, total.unscored, total.executor_tokens, total.cost) == (6, 2, 700 / 6, 2.5)
    assert (total.accuracy, total.valid_rate, total.reward) == (1 / 4, 3 / 5, -4.0 / 4)
    counts = {dimension: {key: line.rollouts for key, line in lines.items()} for dimension, lines in found.by.items()}
    failures = counts.pop("failure")
    assert counts == {
        "domain": {"math": 5, "qa": 1}, "dataset": {"gsm8k": 5, "none": 1}, "operator": {"Custom": 5, "Test": 1},
        "shape": {"Custom": 5, "no operator": 1}, "lint": {"W204": 1, "W205": 1}, "executor": {},
    }  # fmt: skip
    assert {key.partition(" ")[0]: n for key, n in failures.items() if key.startswith("invalid")} == {"invalid:": 1}
    assert {key: n for key, n in failures.items() if not key.startswith("invalid")} == {
        "wrong answer": 1, "raised: ValueError": 1, "unscored: ProviderError": 1, "unscored: no verdict in N tokens": 1,
    }  # fmt: skip
    (part,) = found.time
    assert (part.first, part.last, part.contrast, part.kl, part.seconds) == (1, 1, Contrast(0.75, 240.0), 0.5, 5.0)


def test_a_step_done_again_counts_once_and_time_is_cut_into_ten_parts(tmp_path: Path) -> None:
    steps = [ran(step=n, reward=float(n)) for n in (1, 2, 3)]
    again = RunEvent(resumed_from="checkpoints/nano/run/step_2")
    found = logged(tmp_path / "a.jsonl", RunEvent(), *steps, again, ran(step=3, reward=30.0))
    assert found.total.rollouts == 3 and found.total.reward == (1 + 2 + 30) / 3
    assert logged(tmp_path / "b.jsonl", *steps, RunEvent(), steps[0]).total.rollouts == 1
    events = [event for n in range(1, 24) for event in (ran(step=n, reward=float(n)), report(n))]
    found = logged(tmp_path / "time.jsonl", *events)
    assert [(part.first, part.last) for part in found.time] == [(a, min(a + 2, 23)) for a in range(1, 24, 3)]
    assert found.time[0].line.reward == 2.0


@pytest.fixture
def logs(here: Path) -> Path:
    """Logs of three runs of two models."""
    for model, name in (("nano", "grpo_mixed"), ("nano", "other"), ("qwen", "other")):
        Path("logs", model).mkdir(parents=True, exist_ok=True)
        logged(Path("logs", model, f"{name}.jsonl"), ran(dataset=f"{model}-{name}"))
    return Path("logs")


def test_a_run_is_found_by_name_or_file(logs: Path, cli: CommandLine) -> None:
    for words, dataset in (
        ([], "nano-grpo_mixed"), (["grpo_mixed"], "nano-grpo_mixed"), (["qwen/other"], "qwen-other"),
        (["logs/nano/other.jsonl"], "nano-other"),
    ):  # fmt: skip
        assert set(cli.json("analyze", *words)["by"]["dataset"]) == {dataset}, words
    Path("results.json").write_text('{\n"a": 1\n}\n')
    os.truncate(logs / "qwen/other.jsonl", 0)
    for word, reason in (
        ("other", "several models"), ("none", "nano/grpo_mixed"), ("../secret", "no such log and no such run"),
        ("results.json", "the file is not the log of a run"), ("qwen/other", "no rollouts yet"),
    ):  # fmt: skip
        assert reason in cli.refused("analyze", word)


def test_every_dimension_has_its_table_and_hostile_names_are_text(logs: Path, cli: CommandLine) -> None:
    hostile = ran(dataset="[red]x[/red]", shape="[/]", error="\x1b[31mboo", outcome="raised", correct=False)
    logged(logs / "nano/all.jsonl", hostile, ran(lint=["W301"], correct=False, executor="strong"), report(1))
    printed = cli("analyze", "all")
    assert not [dimension for dimension in DIMENSIONS if f"by {dimension}" not in printed]
    assert "over time" in printed and "contrast: 75 % of the groups, 240 executor tokens for each" in printed
    assert "[red]x[/red]" in printed and "[/]" in printed and "\x1b" not in printed
