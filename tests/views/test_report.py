"""The learning curve, from an event log to a picture."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from llm_as_judge.runlog import EventLog, steps_of
from llm_as_judge.views.charts import learning_curve


def write(path: Path, accuracies: list[float]) -> None:
    with EventLog(path) as log:
        log.log("run", config="...")
        for step, accuracy in enumerate(accuracies, start=1):
            log.log(
                "step",
                step=step,
                accuracy=accuracy,
                reward_mean=10 * accuracy - 5,
                valid_rate=0.9,
                domain_accuracy={"math": accuracy, "code": math.nan},  # nan is written as null; qa is missing
            )
        log.log("checkpoint", step=len(accuracies), path="x")


def drawn(path: Path) -> bytes:
    """The picture, checked to be a PNG of 1210 x 440 with something on it."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1210, 440)
    assert 10_000 < len(data) < 500_000
    return data


def test_a_picture_is_drawn_and_other_numbers_give_another(tmp_path: Path) -> None:
    pictures = []
    for name, accuracies, after in (("a", [0.2, 0.3], 0.6), ("b", [0.2, 0.9], 0.6), ("c", [0.2, 0.3], 0.9)):
        write(tmp_path / f"{name}.jsonl", accuracies)
        learning_curve(steps_of(tmp_path / f"{name}.jsonl"), tmp_path / "new" / f"{name}.png", 0.2, after)
        pictures.append(drawn(tmp_path / "new" / f"{name}.png"))
    assert len(set(pictures)) == 3, "training and held-out accuracy must both be seen"


def test_validations_and_what_the_judge_left_open_are_drawn(tmp_path: Path) -> None:
    with EventLog(tmp_path / "run.jsonl") as log:
        for step in (1, 2, 3):
            log.log("step", step=step, accuracy=0.5, reward_mean=1.0, valid_rate=1.0, abstained=0.0)
        log.log("eval", step=2, overall=0.7, valid_rate=1.0)
    steps, validations = steps_of(tmp_path / "run.jsonl"), steps_of(tmp_path / "run.jsonl", "eval")
    assert [v["overall"] for v in validations] == [0.7]
    pictures = []
    for shown, checked in ((steps, []), (steps, validations), ([{**s, "abstained": 0.3} for s in steps], [])):
        learning_curve(shown, tmp_path / "curve.png", 0.2, 0.6, checked)
        pictures.append(drawn(tmp_path / "curve.png"))
    assert len(set(pictures)) == 3


def test_a_run_of_no_steps_is_an_empty_picture(tmp_path: Path) -> None:
    learning_curve(steps_of(tmp_path / "missing.jsonl"), tmp_path / "curve.png", math.nan, math.nan)
    drawn(tmp_path / "curve.png")


def test_a_step_done_again_after_resuming_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", [0.1, 0.2, 0.3])
    write(tmp_path / "run.jsonl", [0.5, 0.6])
    found = [(event["step"], event["accuracy"]) for event in steps_of(tmp_path / "run.jsonl")]
    assert found == [(1, 0.5), (2, 0.6), (3, 0.3)]


@pytest.mark.parametrize("last", ["", '{"time": 1, "kind": "step", "st'])
def test_a_torn_last_line_does_not_matter(tmp_path: Path, last: str) -> None:
    path = tmp_path / "run.jsonl"
    write(path, [0.1, 0.2])
    with path.open("a") as file:
        file.write(last)
    assert [event["step"] for event in steps_of(path)] == [1, 2]
