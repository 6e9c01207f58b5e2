"""Step metrics, and the log events of a step: one for every rollout, one for the step."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_as_judge.events import Event, RolloutEvent, StepReport
from llm_as_judge.llm.concurrency import Load
from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.update import UpdateReport

#: ``EventLog.log``
Log = Callable[[Event], None]


@dataclass
class Timer:
    """Wall-clock seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of a block, or of a function that it decorates: without that in which the latter waits."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def device_seconds(phases: Mapping[str, float]) -> float:
    """Sum the seconds of work on the device, of a step's seconds by phase: only ``execute`` waits for workflows."""
    return sum(seconds for name, seconds in phases.items() if name != "execute")


class Meter:
    """Use of device and executor since this object was created; ``load`` reads the executor's connections."""

    def __init__(self, timer: Timer, load: Callable[[], Load] | None) -> None:
        self._timer, self._load, self._start = timer, load, time.perf_counter()
        self._before = load() if load else Load()

    def read(self) -> dict[str, float]:
        """Read the fields of ``StepReport``."""
        seconds = time.perf_counter() - self._start
        use = {"device_busy": device_seconds(self._timer.seconds) / seconds}
        if self._load is not None:
            now, before = self._load(), self._before
            requests = now.requests - before.requests
            use["executor_slots"] = (now.used_s - before.used_s) / seconds
            use["slot_wait_s"] = (now.waited_s - before.waited_s) / requests if requests else 0.0
        return use


def step_report(
    step: int, credited: Sequence[CreditedGroup], update: UpdateReport, *, version: int = 0, **measured: Any
) -> StepReport:
    """Report a finished step; ``credited`` are all groups that were drawn, ``measured`` are additional fields."""
    rollouts = [r for c in credited for r in c.group.rollouts]
    scored = [r for r in rollouts if r.reward.total is not None]
    rewards = [r.reward.total or 0.0 for r in scored]
    abstained = sum(r.verdict.abstained for r in rollouts)
    stale = [version - r.completion.policy_version for r in rollouts]
    domains = sorted({r.problem.question.domain for r in scored})
    terms = dict.fromkeys(name for r in scored for name in r.reward.terms)
    graded = any(r.verdict.score is not None for r in scored)
    return StepReport(
        step=step,
        reward_mean=_mean(rewards),
        reward_std=statistics.pstdev(rewards) if rewards else math.nan,
        accuracy=_mean([r.verdict.correct is True for r in scored]),
        score=_mean([r.verdict.worth for r in scored if graded]),
        valid_rate=_mean([r.valid for r in rollouts if r.execution.outcome != "fault"]),
        domain_accuracy={
            d: _mean([r.verdict.correct is True for r in scored if r.problem.question.domain == d]) for d in domains
        },
        terms={name: _mean([r.reward.terms[name] for r in scored if name in r.reward.terms]) for name in terms},
        first_valid_rate=_mean([r.first.valid for r in rollouts if r.first.execution.outcome != "fault"]),
        repairs=_mean([len(r.attempts) for r in rollouts]),
        executor_tokens=_mean([r.tokens for r in rollouts]),
        completion_tokens=_mean([r.completion.written for r in rollouts]),
        truncated=_mean([r.completion.finish_reason == "length" for r in rollouts]),
        groups=len(credited),
        rollouts=len(rollouts),
        skipped_groups=sum(not c.contrast for c in credited),
        left_out_groups=sum(c.left_out for c in credited),
        unscored=len(rollouts) - len(scored),
        abstained=abstained / (len(scored) + abstained) if abstained else 0.0,
        judged_by=next((r.verdict.tier for r in rollouts if r.verdict.abstained), ""),
        version=version,
        staleness=_mean(stale),
        staleness_max=max(stale, default=0),
        **asdict(update),
        **measured,
    )


def log_step(log: Log, credited: Sequence[CreditedGroup], report: StepReport) -> None:
    for group in credited:
        for rollout, advantage in zip(group.group.rollouts, group.advantages, strict=True):
            log(RolloutEvent(step=report.step, advantage=advantage, rollout=rollout))
    log(report)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
