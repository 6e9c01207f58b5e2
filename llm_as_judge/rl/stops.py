"""Conditions that stop a run whose training goes wrong: collapse or no progress.

A run with failing endpoints stops in ``rl.rollout``, one beyond its budget by ``assembly.budget``.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.events import StepReport
from llm_as_judge.types import Group

#: A run stops if the running average of the valid rate falls below this share of its maximum, after the first steps.
COLLAPSE_RATIO = 0.5
COLLAPSE_PATIENCE = 5
#: A run stops after this many steps in a row without a valid workflow and without contrast: nothing was learned.
FRUITLESS_STEPS = 5


class Stops:
    """Checks the steps of a run. Save ``state_dict`` in a checkpoint."""

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config
        self._valid_average: float | None = None
        self._best_valid = 0.0
        self._fruitless = 0  # such steps in a row, since the start or the resume

    def after(self, report: StepReport, groups: Sequence[Group]) -> str:
        """Say why to stop after a step; empty to continue."""
        why = ""
        if not math.isnan(report.valid_rate):
            why = self._collapse(report) or self._standstill(report, groups)
        return f"step {report.step}: {why}" if why else ""

    def state_dict(self) -> dict[str, Any]:
        return {"valid_average": self._valid_average, "best_valid": self._best_valid}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._valid_average, self._best_valid = state["valid_average"], state["best_valid"]

    def _collapse(self, report: StepReport) -> str:
        before = self._valid_average
        self._valid_average = report.valid_rate if before is None else 0.8 * before + 0.2 * report.valid_rate
        self._best_valid = max(self._best_valid, self._valid_average)
        floor = COLLAPSE_RATIO * self._best_valid
        if report.step <= COLLAPSE_PATIENCE or self._valid_average >= floor or self._best_valid < 0.2:
            return ""
        return (
            f"valid workflows fell to {self._valid_average:.0%} (running average) from {self._best_valid:.0%} at best; "
            "continue from the last checkpoint by --resume (from an earlier one: remove the folders after it), with a "
            f"lower training.learning_rate ({self._config.learning_rate}) or higher training.beta ({self._config.beta})"
        )

    def _standstill(self, report: StepReport, groups: Sequence[Group]) -> str:
        fruitless = not report.valid_rate and report.skipped_groups == report.groups
        self._fruitless = self._fruitless + 1 if fruitless else 0
        if self._fruitless < FRUITLESS_STEPS:
            return ""
        reasons = Counter(rollout.execution.error for group in groups for rollout in group.rollouts)
        reason, count = reasons.most_common(1)[0]
        return (
            f"no valid workflow and no group with contrast for {FRUITLESS_STEPS} steps, so that nothing can be "
            f"learned; the most frequent error ({count} of {report.rollouts}): {reason[:300]!r}. llm-as-judge analyze "
            "sums up the errors in the log, doctor --policy shows what the policy writes. Warm it up first "
            f"(llm-as-judge warmup), change generation.temperature (now {report.temperature:g}), or check the prompt "
            "(workflow.*, experience_buffer.*) and the model"
        )
