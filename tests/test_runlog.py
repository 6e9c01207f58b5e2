"""What a run writes survives crashes, full disks, resumed runs and odd values: files, and the log."""

import errno
import json
import logging
import math
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.rollouts import problem, rollout
from helpers.run_logs import read_events, read_rollouts, write

from llm_as_judge.errors import ConfigError
from llm_as_judge.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    LayersEvent,
    PromptEvent,
    RolloutEvent,
    RunEvent,
    StepReport,
    UsageEvent,
)
from llm_as_judge.files import locked, write_whole
from llm_as_judge.runlog import ROLLOUT_BYTES, EventLog, FinishedStep, LogReader, encoded, is_log
from llm_as_judge.types import Completion, Crash, Exchange, Execution, OperatorCall, Problem, Question, Reference


def test_a_full_disk_or_a_folder_in_the_way_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "old")
    path.with_name(f".results.json.{os.getpid()}").symlink_to("/dev/full")  # the temporary file
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_whole(path, b"new")
    assert path.read_text() == "new"
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.json'$"):
        write_whole(tmp_path / "folder.json", "x")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "folder.json", path]


def full(file: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_lock_works_on_a_full_disk_without_naming_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / ".lock", os.write
    for writes, told in ((full, "unknown"), (write, f"process {os.getpid()}")):
        monkeypatch.setattr(os, "write", writes)
        with locked(path), pytest.raises(ConfigError, match=f"in use.*{told}"), locked(path, "in use"):
            pass
        with locked(path, "in use"):  # and free again
            path.write_text("")


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    events: list[Event] = [
        RunEvent(id="a", config="training:\n  max_steps: 3\n", resumed_from=None),
        RolloutEvent(step=1, advantage=0.5, rollout=rollout(problem("p", "math"), True)),
        StepReport(step=1, accuracy=0.5, kl=math.nan, domain_accuracy={"math": 0.5, "qa": math.nan}),
        UsageEvent(step=1, models={"executor": {"calls": 3, "cost": 0.5}}),
        EvalEvent(step=1, scores={"overall": 0.25, "qa": math.nan}),
        CheckpointEvent(step=1, path="x/step_1"),
    ]
    with EventLog(path) as log:
        for event in events:
            log.log(event)
        found = list(LogReader(path).new())  # while it is open
    assert [type(event) for event in found] == [type(event) for event in events]
    assert all(a.time > 0 for a in found)
    report, read = events[2], found[2]
    assert isinstance(report, StepReport) and isinstance(read, StepReport)
    assert math.isnan(read.kl) and math.isnan(read.domain_accuracy["qa"]) and read.accuracy == 0.5
    made, back = events[1], found[1]
    assert isinstance(made, RolloutEvent) and isinstance(back, RolloutEvent)
    assert replace(back.rollout, problem=made.rollout.problem) == made.rollout and back.advantage == 0.5
    assert LogReader.read(tmp_path / "absent.jsonl").steps == []


def test_torn_unreadable_and_unknown_lines_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "run.jsonl", RunEvent(id="one"), StepReport(step=1))
    with open(path, "ab") as file:
        file.write(b'{"kind": "tor')
    assert LogReader.read(path).run.id == "one" and not caplog.records
    with open(path, "ab") as file:
        file.write(b'n\n\xff\xfe\n[1]\n{"time": 1, "kind": "rollout"}\n')
        file.write(b'{"time": 1, "kind": "usage", "models": {"executor": 3}}\n')
        file.write(b'{"time": 1, "kind": "of_another_version", "step": 9}\n')
        file.write(b'{"time": 1, "kind": "step", "step": ' + b"[" * 100_000 + b"]" * 100_000 + b'}\n{"kind": "tor')
    write(path, RunEvent(id="two"), StepReport(step=2))
    with caplog.at_level(logging.WARNING):
        LogReader.read(path)
    assert [event["kind"] for event in read_events(path)].count("step") == 2
    assert "run.jsonl: skipped an unreadable line" in caplog.text


def test_times_out_of_range_and_other_files_are_no_log(tmp_path: Path) -> None:
    path, made = tmp_path / "run.jsonl", rollout(problem("p", "qa"), True)
    ran = RolloutEvent(rollout=replace(made, execution=replace(made.execution, seconds=2.0)))
    whole = encoded(ran).decode()
    for line in (
        '{"kind": "step", "time": 1e308, "step": 1}', '{"kind": "step", "time": null, "step": 1}',
        whole.replace('"seconds":2.0', '"seconds":1e308'), whole.replace('"seconds":0.1', '"seconds":-1e308'),
    ):  # fmt: skip
        path.write_text(f"{line}\n")
        assert list(LogReader(path).new()) == [], line
    assert len(list(LogReader(write(tmp_path / "whole.jsonl", ran)).new())) == 1
    contents = {b"": True, b'{"kind": "ru': True, b"a,b\n1,2\n": False, b'{\n  "a": 1\n}\n': False, b"\x00" * 99: False}
    for content, expected in contents.items():
        (tmp_path / "file").write_bytes(content)
        assert is_log(tmp_path / "file") is expected, content


def test_a_growing_log_is_read_in_whole_lines_and_a_new_file_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    reader = LogReader(path)
    assert list(reader.new()) == []
    write(path, RunEvent(id="run-1"), StepReport(step=1))
    assert len(list(reader.new())) == 2 and list(reader.new()) == []
    with open(path, "ab") as file:
        file.write(b'{"kind": "step", "st')
        file.flush()
        assert list(reader.new()) == []
        file.write(b'ep": 2, "time": 1}\n')
    assert [event.step for event in reader.new() if isinstance(event, StepReport)] == [2]
    path.rename(tmp_path / "old.jsonl")
    write(path, RunEvent(id="run-2"))
    assert len(list(reader.new())) == 1 and reader.run.id == "run-2" and reader.steps == []


def test_a_resumed_session_replaces_later_steps_and_adds_to_usage(tmp_path: Path) -> None:
    usage = UsageEvent(models={"executor": {"calls": 2, "cost": 1.5}})
    path = write(
        tmp_path / "run.jsonl", RunEvent(id="a", time=100.0),
        *(StepReport(step=n, accuracy=n / 10, time=100.0 + n) for n in (1, 2, 3)),
        EvalEvent(step=3, scores={"overall": 0.5}, time=104.0), usage,
        RunEvent(id="b", resumed_from="checkpoints/nano/run/step_2", time=1000.0),
        StepReport(step=3, accuracy=0.9, time=1010.0),
    )  # fmt: skip
    log = LogReader.read(path)
    assert [(step.step, step.accuracy) for step in log.steps] == [(1, 0.1), (2, 0.2), (3, 0.9)]
    assert log.evals == [] and log.usage == {"executor": {"calls": 2, "cost": 1.5}}


def test_a_finished_step_has_its_rollouts_and_prompts(tmp_path: Path) -> None:
    made = rollout(problem("p", "math"), True)
    path = write(
        tmp_path / "run.jsonl",
        RunEvent(id="a"),
        PromptEvent(problem="p", user="asked"),
        RolloutEvent(step=1, rollout=made),
        RunEvent(id="a"),  # the first session ended within its step
        RolloutEvent(step=1, rollout=made),
        StepReport(step=1),
        RolloutEvent(step=2, rollout=made),
    )
    (step,) = (found for found in LogReader(path).finished() if isinstance(found, FinishedStep))
    assert len(step.rollouts) == 1 and step.prompts["p"].user == "asked"


def test_a_full_disk_names_the_file_and_the_next_line_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write_some = tmp_path / "run.jsonl", os.write

    def half(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return write_some(file, data[: len(data) // 2])

    with EventLog(path) as log:
        log.log(StepReport(step=1))
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left") as caught:
            log.log(StepReport(step=2))
        assert caught.value.filename == str(path)
        monkeypatch.setattr(os, "write", write_some)
        log.log(StepReport(step=3))
    assert [step.step for step in LogReader.read(path).steps] == [1, 3]
    device = tmp_path / "device.jsonl"
    device.symlink_to("/dev/full")
    with EventLog(device) as log, pytest.raises(OSError, match="No space left") as caught:
        log.log(StepReport(step=1))
    assert caught.value.filename == str(device)


def test_every_line_is_strict_json_and_writers_do_not_mix(tmp_path: Path) -> None:
    odd: dict[Any, Any] = {
        "nan": math.nan, "inf": [math.inf], "text": "a\nb\u2028\ud800c", "path": tmp_path, 1: {2}, "big": 10**30,
    }  # fmt: skip
    path = write(tmp_path / "run.jsonl", LayersEvent(layer2=odd), PromptEvent(problem="p", user="a\ud800\x00"))
    first, second = path.read_text("utf-8").strip().split("\n")
    found = json.loads(first, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["layer2"]
    assert (found["nan"], found["inf"], found["1"], found["big"]) == (None, [None], [2], str(10**30))
    assert found["text"] == "a\nb\u2028?c" and json.loads(second)["user"] == "a?\x00"
    path = tmp_path / "many.jsonl"

    def write_many(name: int) -> None:
        write(path, *(PromptEvent(problem=str(name), user="x" * 500) for _ in range(100)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_many, range(4)))
    found = Counter(event.problem for event in LogReader(path).new() if isinstance(event, PromptEvent))
    assert found == dict.fromkeys("0123", 100)


def test_a_rollout_takes_a_bounded_part_of_the_log(tmp_path: Path) -> None:
    made = rollout(problem("p", "math"), True)
    many = OperatorCall("ScEnsemble", {"solutions": ["a solution"] * 9_000, "x" * 10**6: 1}, {"response": "b" * 10**6})
    talk = OperatorCall("Custom", {}, {}, (Exchange("c" * 50_000, "d" * 50_000, "stop", 1, 1, 0, 0.1),) * 9)
    cases = {
        "24 calls with 9,000 texts each": (many,) * 24,
        "many long exchanges": (talk,) * 24,
        "deeply nested": (OperatorCall("Custom", {"input": [[["e" * 100] * 100] * 100] * 9}, {}),),
        "a thousand calls": (talk,) * 1000,
    }
    for name, calls in cases.items():
        long = replace(made, execution=Execution("finished", "f" * 10**6, calls, "g" * 10**6))
        path = write(tmp_path / f"{name}.jsonl", RolloutEvent(step=1, rollout=long))
        (found,) = LogReader(path).new()
        assert path.stat().st_size <= ROLLOUT_BYTES, name
        assert isinstance(found, RolloutEvent) and found.rollout.workflow == made.workflow
        assert (found.rollout.tokens, len(found.rollout.calls)) == (long.tokens, len(calls))
        assert "characters cut" in (found.rollout.execution.answer or "")


def test_a_log_has_neither_token_ids_nor_hidden_parts_of_the_problem(tmp_path: Path) -> None:
    completion = Completion("text", (7001,), (7002, 7003), (-7.004, 0.0), "stop", mask=(True, False))
    question = Question("p", "a 7.text", "code", "7.context", "f", ("7.public",), prelude="7.prelude")
    ran = Execution("finished", "12", crashes=(Crash("Own", "7.place", "7.traceback"),))
    for reference, shown in ((Reference(("12",), "7.hidden"), "12"), (Reference(tests="a test"), "a test")):
        of = Problem(question, reference, "7.file", "7.benchmark")
        made = replace(rollout(of, True), completion=completion, execution=ran)
        path = write(tmp_path / f"{shown}.jsonl", RolloutEvent(rollout=made, time=1.0))
        (read,) = read_rollouts(path)
        assert not re.findall(r"700\d|7\.\w+", path.read_text()) and encoded(read) == path.read_bytes().rstrip()
        assert read.rollout.problem.reference.shown == (shown,) and read.rollout.completion.written == 1


def test_rollouts_of_an_earlier_version_are_refused_and_its_steps_are_read(tmp_path: Path, cli: CommandLine) -> None:
    path = write(tmp_path / "run.jsonl", RunEvent(id="old"), StepReport(step=1, accuracy=0.5))
    with open(path, "a") as file:
        file.write('{"kind":"rollout","time":1.0,"problem":"p","domain":"qa","outcome":"finished","correct":true}\n')
    assert re.search(r"right +50 %", cli("monitor", str(path), "--once"))
    assert "run.jsonl: rollouts in the format of an earlier version; read" in cli.refused("analyze", str(path))
