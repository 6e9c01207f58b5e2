"""Typed events of a run's log, one per line. ``runlog`` writes and reads them, ``rl.report`` fills those of a step.

Training writes every kind; an evaluation keeps its ``RolloutEvent`` records in files of the same format.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import yaml

from llm_as_judge.types import Exchange, Execution, OperatorCall, Rollout

_LATEST = 1e11  # Unix seconds, in the year 5138
_LONGEST = 1e9  # seconds of a call or a rollout


class Event(msgspec.Struct, kw_only=True, frozen=True, tag_field="kind"):
    time: Annotated[float, msgspec.Meta(ge=0, le=_LATEST)] = 0.0  # Unix seconds; set by ``EventLog``


class RunEvent(Event, kw_only=True, frozen=True, tag="run"):
    """Start of a session. Steps after ``kept`` are repeated."""

    id: str = ""
    config: str = ""  # YAML
    sandbox: str = ""
    resumed_from: str | None = None

    @property
    def kept(self) -> int:
        """Last step of the checkpoint that the session resumed from; 0 without one."""
        found = re.search(r"step_(\d+)\W*$", self.resumed_from or "")
        return int(found[1]) if found else 0

    @property
    def settings(self) -> Mapping[str, Any]:
        return _parsed(self.config)

    def setting(self, section: str, name: str) -> str:
        """Write a setting as text; empty if the log does not contain it."""
        values = self.settings.get(section)
        return str(values.get(name, "")) if isinstance(values, Mapping) else ""

    @property
    def models(self) -> tuple[str, str, str]:
        """Names of policy, executor and judge."""
        executor, judge = (self.setting(role, "model") or role for role in ("executor", "judge"))
        return self.setting("model", "model_name") or "policy", executor, judge


class LayersEvent(Event, kw_only=True, frozen=True, tag="layers"):
    """``layer1``: system prompt of the policy; ``layer2``: additions to the operators' prompts."""

    layer1: str = ""
    layer2: Any = None


class PromptEvent(Event, kw_only=True, frozen=True, tag="prompt"):
    step: int = 0  # whose rollouts answer it; older logs do not have it
    problem: str
    user: str
    question: str = ""
    examples: int = 0


class RolloutEvent(Event, kw_only=True, frozen=True, tag="rollout"):
    """A rollout in training or in an evaluation."""

    step: int = 0  # of training
    index: int = 0  # of the problem in an evaluation
    sample: int = 0  # of the problem in an evaluation
    advantage: float | None = None
    rollout: Rollout

    def __post_init__(self) -> None:
        rollout, calls = self.rollout, self.rollout.calls
        exchanges = [*rollout.verdict.exchanges, *(exchange for call in calls for exchange in call.exchanges)]
        timed: list[Execution | OperatorCall | Exchange] = [*rollout.executions, *calls, *exchanges]
        if not all(0 <= one.seconds <= _LONGEST for one in timed):
            raise ValueError("a duration is out of range")


class StepReport(Event, kw_only=True, frozen=True, tag="step"):
    """Metrics of one step. Rates are shares in [0, 1]; NaN is a mean over no values."""

    step: int
    reward_mean: float = math.nan  # scored rollouts
    reward_std: float = math.nan
    accuracy: float = math.nan  # of scored rollouts
    score: float = math.nan  # mean of scored rollouts; NaN for a judge of right and wrong
    valid_rate: float = math.nan  # rollouts that ran to an answer, without infrastructure faults
    first_valid_rate: float = math.nan  # the same for first attempts only
    repairs: float = 0.0  # per rollout
    domain_accuracy: Mapping[str, float] = {}
    terms: Mapping[str, float] = {}  # mean of each reward term on its own scale
    executor_tokens: float = math.nan  # per workflow run
    completion_tokens: float = math.nan  # per completion
    truncated: float = 0.0  # share of completions cut off at the length limit
    loss: float = math.nan
    kl: float = math.nan  # estimate, to the reference; NaN if beta is 0
    entropy: float = math.nan  # nats per trained token
    clip_fraction: float = math.nan
    corrected: float = math.nan  # share of trained tokens whose importance weight was truncated or masked
    sampling_logp_difference: float = math.nan  # mean absolute, of log-probs: trainer minus engine
    grad_norm: float = math.nan
    learning_rate: float = math.nan
    temperature: float = math.nan  # of sampling
    groups: int = 0
    rollouts: int = 0
    skipped_groups: int = 0  # without contrast, including replaced ones
    refilled_groups: int = 0  # drawn to replace skipped ones
    left_out_groups: int = 0  # because the judge abstained on one of their rollouts
    unscored: int = 0
    abstained: float = 0.0  # share of abstentions among rollouts that were scored or abstained on
    judged_by: str = ""  # the tier of the first abstention
    version: int = 0  # of the weights that were updated
    staleness: float = 0.0  # mean number of steps between the weights that sampled and those updated
    staleness_max: int = 0
    device_busy: float = math.nan  # share of the step's time
    executor_slots: float = math.nan  # request slots in use, on average
    slot_wait_s: float = math.nan  # seconds that a request waited for its slot, on average
    seconds: Mapping[str, float] = {}  # by phase

    @property
    def between(self) -> tuple[float, float]:
        """Accuracy if every abstention of the judge was wrong, and if every one was right."""
        low = 0.0 if self.abstained == 1 else self.accuracy * (1 - self.abstained)
        return low, low + self.abstained


@dataclass(frozen=True, slots=True)
class Contrast:
    """Share of groups with differing rewards, which alone give a gradient, and executor tokens spent for each."""

    share: float
    tokens: float

    @classmethod
    def of(cls, steps: Sequence[StepReport]) -> "Contrast":
        groups = sum(step.groups for step in steps)
        found = groups - sum(step.skipped_groups for step in steps)
        tokens = sum(step.executor_tokens * step.rollouts for step in steps if step.rollouts)
        return cls(found / groups if groups else math.nan, tokens / found if found else math.nan)

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % of the groups, {self.tokens:,.0f} executor tokens for each"


class UsageEvent(Event, kw_only=True, frozen=True, tag="usage"):
    """Requests to each model, by role, since the start of the session."""

    step: int = 0
    models: Mapping[str, Mapping[str, int | float]]


class EvalEvent(Event, kw_only=True, frozen=True, tag="eval"):
    """A validation during training: shares by name (``overall``, ``valid_rate``, domains)."""

    step: int
    scores: Mapping[str, float]


class CheckpointEvent(Event, kw_only=True, frozen=True, tag="checkpoint"):
    step: int
    path: str


class PromptTooLongEvent(Event, kw_only=True, frozen=True, tag="prompt_too_long"):
    step: int
    problem: str
    tokens: int


@functools.lru_cache(maxsize=4)
def _parsed(config: str) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(config)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}
