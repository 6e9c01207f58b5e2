"""``monitor``: figures from the log of a running, resumed or finished run."""

import io
import math
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.run_logs import write
from rich.console import Console

from llm_as_judge.commands.app import main
from llm_as_judge.events import EvalEvent, RunEvent, StepReport, UsageEvent
from llm_as_judge.runlog import LogReader
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
        "reward": "", "right": "50 %   math 25  code -  qa -", "valid": "75 %", "zero variance": "25 % of the groups",
        "unscored": "24 rollouts of the run", "tokens/s": "200 of policy and executor in rollouts", "cost": "3.5",
        "seconds a step": "5.0   generate 1.0  execute 3.0  update 1.0", "validation": "step 8: overall 62",
    }  # fmt: skip
    assert (
        curve([1.0]) == "" and curve([1.0, math.nan, 3.0]) == "▁█" and len(curve([float(n) for n in range(999)])) <= 60
    )


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


def test_without_a_terminal_it_shows_the_newest_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["monitor"]) == 2
    assert "no such log" in capsys.readouterr().err
    for age, name in ((100, "old"), (0, "new")):
        file = write(Path(f"logs/nano/{name}.jsonl"), run(name), step(4))
        os.utime(file, (time.time() - age,) * 2)
    assert main(["monitor"]) == 0
    printed = capsys.readouterr().out
    assert "─ new ─" in printed and "step 4/20" in printed
    Path("notes.txt").write_text("some\nnotes\n")
    assert main(["monitor", "notes.txt"]) == 2
    assert "notes.txt is not the log of a run" in capsys.readouterr().err


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
