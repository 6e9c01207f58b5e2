"""The learning curve as a picture."""

from __future__ import annotations

import math
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


def test_training_and_held_out_accuracy_validations_and_abstentions_are_drawn(tmp_path: Path) -> None:
    made, file = steps(0.2, 0.3), tmp_path / "new/curve.png"
    pictures = []
    for shown, after, evals in (
        (made, 0.6, []),
        (made, 0.6, [EvalEvent(step=2, scores={"overall": 0.7})]),
        ([msgspec.structs.replace(step, abstained=0.3) for step in made], 0.6, []),
        ([], math.nan, []),
    ):
        learning_curve(shown, file, 0.2, after, evals)
        pictures.append(file.read_bytes())
    assert len(set(pictures)) == 4 and all(picture.startswith(b"\x89PNG") for picture in pictures)
