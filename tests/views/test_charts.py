"""The learning curve as a picture."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import msgspec

from llm_as_judge.evaluation.metrics import Estimate
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
    pictures, found = [], Estimate(0.6, 0.5, 0.7, 50)
    for shown, after, evals in (
        (made, found, []),
        (made, replace(found, high=0.9), []),
        (made, found, [EvalEvent(step=2, scores={"overall": 0.7})]),
        ([msgspec.structs.replace(step, abstained=0.3) for step in made], found, []),
        ([], Estimate(math.nan, math.nan, math.nan, 0), []),
    ):
        learning_curve(shown, file, Estimate(0.2, 0.1, 0.3, 50), after, evals)
        pictures.append(file.read_bytes())
    assert len(set(pictures)) == 5 and all(picture.startswith(b"\x89PNG") for picture in pictures)
