"""The event log survives crashes and odd values."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import threading
from pathlib import Path

import pytest

from llm_as_judge.runlog import EventLog, EventReader, read_events
from llm_as_judge.types import Verdict


def test_events_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    with EventLog(path) as log:
        log.log("start", seed=0)
        log.log("step", step=1, terms={"correctness": 10.0}, verdict=Verdict(True, "rules"))
        assert [event["kind"] for event in read_events(path)] == ["start", "step"]  # readable while open
    events = list(read_events(path))
    assert events[1]["terms"] == {"correctness": 10.0}
    assert events[1]["verdict"]["tier"] == "rules"
    assert events[0]["time"] <= events[1]["time"]
    assert list(read_events(tmp_path / "absent.jsonl")) == []


def test_a_torn_last_line_is_skipped_and_not_joined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        log.log("one")
    with open(path, "a") as file:
        file.write('{"kind": "tor')
    assert [event["kind"] for event in read_events(path)] == ["one"]
    assert not caplog.records
    with EventLog(path) as log:
        log.log("two")
    with caplog.at_level(logging.WARNING):
        assert [event["kind"] for event in read_events(path)] == ["one", "two"]
    assert "run.jsonl:2" in caplog.text


def test_a_full_disk_is_told_with_the_files_name_and_the_next_event_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    write = os.write

    def half(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return write(file, data[: len(data) // 2])

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with EventLog(path) as log:
        log.log("one")
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left") as caught:
            log.log("two")
        assert caught.value.filename == str(path)
        monkeypatch.setattr(os, "write", write)
        log.log("three")
    assert [event["kind"] for event in read_events(path)] == ["one", "three"]


def test_a_device_that_is_full_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.symlink_to("/dev/full")
    with EventLog(path) as log, pytest.raises(OSError, match="No space left") as caught:
        log.log("one")
    assert caught.value.filename == str(path)


def test_every_line_is_strict_json_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        log.log("odd", nan=math.nan, inf=[math.inf], text="a\nb\u2028\ud800", path=tmp_path, keys={1: {2}})
    (line,) = path.read_text().splitlines()
    event = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (event["nan"], event["inf"], event["keys"]) == (None, [None], {"1": [2]})


def test_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def write(name: str) -> None:
        with EventLog(path) as log:
            for _ in range(100):
                log.log(name, filler="x" * 500)

    threads = [threading.Thread(target=write, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [event["kind"] for event in read_events(path)]
    assert sorted(kinds) == sorted(str(i) for i in range(4) for _ in range(100))


def test_half_a_surrogate_pair_does_not_cost_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        log.log("rollout", text="a\ud800b \u00e9 \x00")
    assert [event["text"] for event in EventReader[dict[str, str]](path).new()] == ["a?b \u00e9 \x00"]
