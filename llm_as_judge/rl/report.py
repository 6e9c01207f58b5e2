"""What one step came to, and the events that tell of it: a line a rollout and a line a step."""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from llm_as_judge.rl.credit import CreditedGroup
from llm_as_judge.rl.update import UpdateReport
from llm_as_judge.types import Reference
from llm_as_judge.workflow.structure import shape

#: Characters that the log keeps of a text in an operator's call.
LONGEST = 20_000


class Log(Protocol):
    """``EventLog.log``."""

    def __call__(self, kind: str, /, **fields: Any) -> None: ...


@dataclass
class Timer:
    """Wall-clock seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Use:
    """How device and executor were used from one step's beginning to its end; NaN: not measured."""

    device_busy: float = math.nan  # share of the time in which the device worked
    executor_slots: float = math.nan  # places for requests in use, on average
    slot_wait_s: float = math.nan  # seconds that a request waited for its place, on average


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step came to. Rates are shares in [0, 1]; means over nothing are NaN."""

    step: int
    reward_mean: float  # scored rollouts
    accuracy: float  # of scored rollouts, the right ones
    valid_rate: float  # of rollouts that were not our fault, those that ran to an answer
    domain_accuracy: Mapping[str, float]
    executor_tokens: float  # per workflow run
    completion_tokens: float  # per completion
    loss: float
    kl: float  # k3 to the reference, NaN where beta is 0
    entropy: float  # nats per trained token
    clip_fraction: float
    corrected: float  # share of trained tokens whose importance weight was truncated or masked
    grad_norm: float
    learning_rate: float
    groups: int
    rollouts: int
    skipped_groups: int  # without contrast, replaced ones included
    refilled_groups: int  # groups drawn in place of skipped ones
    unscored: int
    seconds: Mapping[str, float]  # by phase
    truncated: float = 0.0  # share of completions cut off at the length limit
    temperature: float = math.nan  # of sampling
    abstained: float = 0.0  # of the rollouts scored or abstained on, the share the judge left open
    left_out_groups: int = 0  # for an abstention in them
    version: int = 0  # of the weights that were updated
    staleness: float = 0.0  # steps between the weights that sampled a completion and those, on average
    staleness_max: int = 0
    use: Use = Use()
    reward_std: float = math.nan  # over the step's scored rollouts
    terms: Mapping[str, float] = field(default_factory=dict)  # mean of each term of the reward, on its own scale

    @property
    def between(self) -> tuple[float, float]:
        """The accuracy had all that the judge left open been wrong, and right; ``accuracy`` itself flatters then."""
        low = 0.0 if self.abstained == 1 else self.accuracy * (1 - self.abstained)
        return low, low + self.abstained


def step_report(
    step: int,
    credited: Sequence[CreditedGroup],
    update: UpdateReport,
    *,
    learning_rate: float,
    seconds: Mapping[str, float],
    temperature: float = math.nan,
    refilled: int = 0,
    version: int = 0,
    use: Use = Use(),
) -> StepReport:
    """Sums up a step whose update is done; ``step`` counts it. ``credited`` are all groups that were drawn."""
    rollouts = [r for c in credited for r in c.group.rollouts]
    scored = [r for r in rollouts if r.reward.total is not None]
    abstained = sum(r.verdict.abstained for r in rollouts)
    stale = [version - r.completion.policy_version for r in rollouts]
    domains = sorted({r.problem.question.domain for r in scored})
    terms = dict.fromkeys(name for r in scored for name in r.reward.terms)
    return StepReport(
        step=step,
        reward_mean=_mean([r.reward.total or 0.0 for r in scored]),
        accuracy=_mean([r.verdict.correct is True for r in scored]),
        valid_rate=_mean([r.valid for r in rollouts if r.execution.outcome != "fault"]),
        domain_accuracy={
            d: _mean([r.verdict.correct is True for r in scored if r.problem.question.domain == d]) for d in domains
        },
        executor_tokens=_mean([r.execution.tokens for r in rollouts]),
        completion_tokens=_mean([len(r.completion.token_ids) for r in rollouts]),
        loss=update.loss,
        kl=update.kl,
        entropy=update.entropy,
        clip_fraction=update.clip_fraction,
        corrected=update.corrected,
        grad_norm=update.grad_norm,
        learning_rate=learning_rate,
        groups=len(credited),
        rollouts=len(rollouts),
        skipped_groups=sum(not c.contrast for c in credited),
        refilled_groups=refilled,
        unscored=sum(c.unscored for c in credited),
        seconds=dict(seconds),
        truncated=_mean([r.completion.finish_reason == "length" for r in rollouts]),
        temperature=temperature,
        abstained=abstained / (len(scored) + abstained) if abstained else 0.0,
        left_out_groups=sum(c.left_out for c in credited),
        version=version,
        staleness=_mean(stale),
        staleness_max=max(stale, default=0),
        use=use,
        reward_std=statistics.pstdev([r.reward.total or 0.0 for r in scored]) if scored else math.nan,
        terms={name: _mean([r.reward.terms[name] for r in scored if name in r.reward.terms]) for name in terms},
    )


def log_step(log: Log, credited: Sequence[CreditedGroup], report: StepReport) -> None:
    """An event for every rollout, then one for the step; a prompt is told by its digest."""
    for group in credited:
        question = group.group.problem.question
        for rollout, advantage in zip(group.group.rollouts, group.advantages, strict=True):
            log(
                "rollout",
                step=report.step,
                problem=question.id,
                domain=question.domain,
                dataset=question.dataset,
                prompt=_digest(rollout.completion.prompt_ids),
                text=rollout.completion.text,
                workflow=None if rollout.workflow == rollout.completion.text else rollout.workflow,
                completion_tokens=len(rollout.completion.token_ids),
                finish_reason=rollout.completion.finish_reason,
                shape=shape(rollout.workflow),
                lint=[finding.code for finding in rollout.execution.findings],
                outcome=rollout.execution.outcome,
                error=rollout.execution.error,
                answer=rollout.execution.answer,
                operators=[c.name for c in rollout.execution.calls],
                calls=[_shortened(asdict(c)) for c in rollout.execution.calls],
                seconds=rollout.execution.seconds,
                executor_tokens=rollout.execution.tokens,
                cost=rollout.execution.cost,
                correct=rollout.verdict.correct,
                abstained=rollout.verdict.abstained,
                tier=rollout.verdict.tier,
                reason=rollout.verdict.reason,
                score=rollout.verdict.score,
                judged=[_shortened(asdict(e)) for e in rollout.verdict.exchanges],
                reward=rollout.reward.total,
                terms=dict(rollout.reward.terms),
                advantage=advantage,
                reference=_shortened(_expected(group.group.problem.reference)),
            )
    # JSON has no NaN: what was not measured is null.
    fields = asdict(report)
    fields |= fields.pop("use")
    log("step", **{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()})


def _expected(reference: Reference) -> Sequence[str]:
    """What a right answer is, for whoever reads the log; no workflow ever does."""
    tests = (reference.tests,) if reference.tests else ()
    return reference.answers or tests or (("no answer",) if reference.unanswerable else ())


def _shortened(value: Any) -> Any:
    """``value`` with the middle of every text taken out that is longer than ``LONGEST``."""
    if isinstance(value, str) and len(value) > LONGEST:
        half = LONGEST // 2
        return f"{value[:half]}\n... {len(value) - 2 * half} characters left out ...\n{value[-half:]}"
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, (list, tuple)) else value


def _digest(prompt: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, prompt)).encode()).hexdigest()[:16]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
