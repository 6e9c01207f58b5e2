"""The learning curve as a picture."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import msgspec

from llm_as_judge.events import EvalEvent, StepReport
from llm_as_judge.views.charts import learning_curve


def steps(*accuracies: float) -> list[StepReport]:
    return [
        StepReport(
            step=step,
            accuracy=accuracy,
            reward_mean=10 * accuracy - 5,
            valid_rate=0.9,
            domain_accuracy={"math": accuracy, "code": math.nan},
        )
        for step, accuracy in enumerate(accuracies, start=1)
    ]


def drawn(path: Path) -> bytes:
    """The picture, which must be a PNG of 1210 x 440."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1210, 440)
    return data


def test_training_and_held_out_accuracy_validations_and_abstentions_are_drawn(tmp_path: Path) -> None:
    made, file = steps(0.2, 0.3), tmp_path / "new/curve.png"
    pictures = []
    for shown, after, evals in (
        (made, 0.6, []),
        (steps(0.2, 0.9), 0.6, []),
        (made, 0.9, []),
        (made, 0.6, [EvalEvent(step=2, scores={"overall": 0.7})]),
        ([msgspec.structs.replace(step, abstained=0.3) for step in made], 0.6, []),
        ([], math.nan, []),
    ):
        learning_curve(shown, file, 0.2, after, evals)
        pictures.append(drawn(file))
    assert len(set(pictures)) == 6
