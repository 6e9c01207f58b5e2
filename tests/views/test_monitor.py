"""``monitor``: figures from the log of a run that goes on, is resumed or is over."""

from __future__ import annotations

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
from rich.console import Console

from llm_as_judge.commands.app import main
from llm_as_judge.evaluation.watching import Watched
from llm_as_judge.runlog import EventLog, EventReader
from llm_as_judge.views.watch import curve, look_panel

ROOT = Path(__file__).parents[2]


def step(number: int, **more: Any) -> dict[str, Any]:
    told = {
        "step": number, "reward_mean": float(number), "accuracy": 0.5, "valid_rate": 0.75, "groups": 4, "rollouts": 8,
        "skipped_groups": 1, "unscored": 2, "executor_tokens": 90.0, "completion_tokens": 10.0,
        "domain_accuracy": {"math": 0.25}, "seconds": {"generate": 1.0, "execute": 3.0, "update": 1.0},
    }  # fmt: skip
    return {**told, **more}


def usage(cost: float) -> dict[str, Any]:
    return {"executor": {"calls": 1, "cost": cost}, "judge": {"calls": 1, "cost": 1.0}}


RUN = {"id": "run-1", "config": "training:\n  max_steps: 20\n", "resumed_from": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def write(path: Path, *events: tuple[str, dict[str, Any]]) -> None:
    with EventLog(path) as log:
        for kind, fields in events:
            log.log(kind, **fields)


def test_figures_are_those_of_the_last_steps(path: Path) -> None:
    write(path, ("run", RUN), *(("step", step(n, time=100.0 + 5 * n)) for n in range(1, 13)), ("usage", usage(2.5)))
    look = Watched(path).look()
    assert (look.run, look.step, look.total, look.done) == ("run-1", 12, 20, False)
    assert look.left_s == 8 * 5.0
    assert look.reward == sum(range(3, 13)) / 10 and list(look.rewards) == [float(n) for n in range(1, 13)]
    assert (look.accuracy, look.valid_rate, look.zero_variance, look.unscored) == (0.5, 0.75, 0.25, 24)
    assert look.domains["math"] == 0.25 and math.isnan(look.domains["qa"])
    assert look.tokens_per_s == 100 * 8 / 4 and sum(look.seconds.values()) == 5.0
    assert look.cost == 3.5


def test_what_is_new_is_seen_and_only_whole_lines(path: Path) -> None:
    watched = Watched(path)
    assert (watched.look().step, watched.look().total) == (0, 0)
    write(path, ("run", RUN), ("step", step(1)))
    assert watched.look().step == 1
    with open(path, "ab") as file:
        file.write(b'{"time": 1, "kind": "st')
        file.flush()
        assert watched.look().step == 1
        file.write(b'ep", "step": 2, "reward_mean": null, "accuracy": null, "valid_rate": 1.0, "groups": 1,')
        file.write(b'"rollouts": 2, ')
        file.write(b'"skipped_groups": 1, "unscored": 2, "executor_tokens": 1.0, "completion_tokens": 1.0,')
        file.write(b'"domain_accuracy": {}, "seconds": {}}\n')
    look = watched.look()
    assert look.step == 2 and math.isnan(look.rewards[1]) and look.reward == 1.0


def test_a_resumed_run_goes_on_and_another_log_in_its_place_starts_anew(path: Path) -> None:
    watched = Watched(path)
    write(path, ("run", RUN), *(("step", step(n)) for n in (1, 2, 3)), ("usage", usage(4.0)))
    again = {**RUN, "resumed_from": "checkpoints/step_2"}
    write(path, ("run", again), ("step", step(3, unscored=0)), ("usage", usage(1.0)))
    look = watched.look()
    assert (look.step, look.unscored, look.cost) == (3, 4, 5.0 + 2.0)
    path.rename(path.with_name("old.jsonl"))
    write(path, ("run", {**RUN, "id": "run-2"}), ("step", step(1)))
    look = watched.look()
    assert (look.run, look.step, look.cost) == ("run-2", 1, 0.0)


def test_events_come_once_and_typed_ones_as_their_type(path: Path) -> None:
    reader: EventReader[Any] = EventReader(path, skip=("prompt",))
    assert list(reader.new()) == []
    write(path, ("a", {"x": 1}), ("prompt", {"user": "y" * 10_000}), ("b", {"kind_of": "c"}))
    assert [event["kind"] for event in reader.new()] == ["a", "b"]
    assert list(reader.new()) == []


def test_the_panel_fits_every_terminal_and_shows_hostile_text(path: Path) -> None:
    write(path, ("run", {**RUN, "id": "[red]x"}), *(("step", step(n)) for n in range(1, 90)))
    write(path, ("eval", {"step": 80, "overall": 0.625, "math": 0.5}))
    look = Watched(path).look()
    for width in (40, 80, 200):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(look_panel(look))
        printed = console.export_text()
        assert max(map(len, printed.splitlines())) <= width
    assert "[red]x" in printed and "step 89/20" in printed and "step 80: overall 62  math 50" in printed


def test_the_curve_rises_with_the_values() -> None:
    assert curve([1.0]) == "" and curve([math.nan, math.nan]) == ""
    assert curve([1.0, 2.0, math.nan, 3.0]) == "▁▄█" or curve([1.0, 2.0, 3.0])[0] < curve([1.0, 2.0, 3.0])[-1]
    assert len(curve([float(n) for n in range(1000)])) <= 60


def test_without_a_terminal_it_shows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["monitor"]) == 2
    assert "there are none" in capsys.readouterr().err
    for age, name in ((100, "old"), (0, "new")):
        Path("logs/nano").mkdir(parents=True, exist_ok=True)
        write(file := Path(f"logs/nano/{name}.jsonl"), ("run", {**RUN, "id": name}), ("step", step(4)))
        os.utime(file, (time.time() - age,) * 2)
    assert main(["monitor"]) == 0
    printed = capsys.readouterr().out
    assert "new" in printed and "step 4/20" in printed, "the run that wrote last"
    assert main(["monitor", "old"]) == 0
    assert "─ old ─" in capsys.readouterr().out


def test_on_a_terminal_it_follows_the_run_to_its_end(path: Path) -> None:
    write(path, ("run", RUN), ("step", step(18)))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "llm_as_judge", "monitor", str(path), "--every", "0.1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
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
                write(path, ("step", step(written)))
        assert process.wait(60) == 0
    os.close(ours)
    assert all(f"step {n}/20".encode() in shown for n in (18, 19, 20))
