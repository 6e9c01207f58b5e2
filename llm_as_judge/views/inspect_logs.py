"""Rollouts and evaluations as Inspect logs, for ``inspect view``.

A log is a step or an evaluation; a sample in it is a problem, an epoch of the sample a member of its group. Texts of
models and datasets are shown as plain text. The parts of a rollout are laid end to end, because a run's log contains
durations, not start times. The extra ``inspect`` installs Inspect.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.intervals import mean_known
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import picked
from llm_as_judge.runlog import FinishedStep, json_data
from llm_as_judge.types import Exchange, OperatorCall
from llm_as_judge.workflow.lint.codes import meaning

try:
    from inspect_ai import event, model
    from inspect_ai import log as logs
    from inspect_ai.scorer import Score
    from inspect_ai.viewer import ViewerConfig
except ImportError as error:
    raise ConfigError(f"Inspect is an extra: python -m pip install 'llm-as-judge[inspect]' ({error})") from error

#: Format of the time at the start of a log's name.
_STAMP = "%Y-%m-%dT%H-%M-%S+00-00"


@dataclass
class _Transcript:
    """Events of a rollout, laid end to end from ``now``."""

    now: datetime
    events: list[event.Event] = field(default_factory=list)
    usage: dict[str, model.ModelUsage] = field(default_factory=dict)
    _spans: list[str] = field(default_factory=list)

    def add(self, kind: type[Any], seconds: float = 0.0, **fields: Any) -> None:
        if seconds:
            fields |= {"completed": self.now + timedelta(seconds=seconds), "working_time": seconds}
        fields.setdefault("span_id", self._spans[-1] if self._spans else None)
        # Without a name Inspect draws a random one, which takes longer than everything else here.
        self.events.append(kind(uuid=f"event-{len(self.events)}", timestamp=self.now, working_start=0.0, **fields))
        self.now += timedelta(seconds=seconds)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        id, above = f"{len(self.events)}-{name}", self._spans[-1] if self._spans else None
        self.add(event.SpanBeginEvent, id=id, name=name, parent_id=above, span_id=id)
        self._spans.append(id)
        yield
        self._spans.pop()
        self.add(event.SpanEndEvent, id=id, span_id=id)

    def replied(self, name: str, asked: Sequence[Any], exchange: Exchange) -> None:
        read, written = exchange.prompt_tokens, exchange.completion_tokens
        usage = model.ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        self.usage[name] = self.usage.get(name, model.ModelUsage()) + usage
        output = model.ModelOutput.from_content(name, exchange.reply, "max_tokens" if exchange.cut_off else "stop")
        output.usage = usage
        self.add(
            event.ModelEvent, exchange.seconds, model=name, input=list(asked), tools=[], tool_choice="none",
            config=model.GenerateConfig(), output=output,
        )  # fmt: skip

    def exchanged(self, name: str, exchanges: Sequence[Exchange]) -> None:
        for exchange in exchanges:
            self.replied(name, [model.ChatMessageUser(content=exchange.prompt)], exchange)

    def called(self, call: OperatorCall, executor: str) -> None:
        with self.span(call.name):
            self.exchanged(call.executor or executor, call.exchanges)
            lines = {**call.result, **({"error": call.error} if call.error else {})}
            own = max(0.0, call.seconds - sum(exchange.seconds for exchange in call.exchanges))
            self.add(
                event.ToolEvent, own, id=f"call-{len(self.events)}", function=call.name,
                arguments=dict(call.arguments), result="\n\n".join(f"{name}: {value}" for name, value in lines.items()),
            )  # fmt: skip


def step_log(step: FinishedStep) -> logs.EvalLog:
    run, report, samples = step.run, step.report, []
    policy, executor, _ = run.models
    for one, member, prompt in step.members():
        asked: list[Any] = [model.ChatMessageSystem(content=step.system)] if step.system else []
        asked += [model.ChatMessageUser(content=prompt.user)] if prompt.user else []
        id, question = one.rollout.problem.question.id, prompt.question or prompt.user
        samples.append(_sample(one, run.models, id, member, question, asked))
    figures = {name: json_data(getattr(report, name)) for name in report.__struct_fields__ if name != "time"}
    began = min((one.time for one in step.rollouts), default=0.0)
    return _log(step_name(report.step), policy, began, samples, {"run": run.id, "executor": executor, **figures})


def records_log(records: Sequence[RolloutEvent], name: str, policy: str, moment: float) -> logs.EvalLog:
    """Build the log of an evaluation; ``moment`` is when its file was last written (Unix seconds)."""
    samples, models = [], (policy, "executor", "judge")
    for record in records:
        problem = record.rollout.problem.question.id
        samples.append(_sample(record, models, f"{record.index + 1} {problem}", record.sample + 1, problem))
    return _log(name, policy, moment, samples, {"evaluation": name})


def _sample(
    logged: RolloutEvent, models: Sequence[str], id: str, epoch: int, question: str, asked: Sequence[Any] = ()
) -> logs.EvalSample:
    """Build a sample; ``models`` are policy, executor and judge; ``asked`` are the messages to the policy."""
    policy, executor, judge = models
    rollout, execution, completion = logged.rollout, logged.rollout.execution, logged.rollout.completion
    target, codes = list(rollout.problem.reference.shown), [finding.code for finding in execution.findings]
    transcript = _Transcript(_moment(logged.time - rollout.seconds))
    turns = list(asked)
    for attempt in rollout.attempts:
        with transcript.span("policy"):
            transcript.replied(policy, turns, Exchange("", attempt.workflow, "stop", 0, 0, 0.0, 0.0))
        with transcript.span("failed attempt"):
            for call in attempt.execution.calls:
                transcript.called(call, executor)
        turns.append(model.ChatMessageAssistant(content=attempt.workflow, model=policy))
        turns.append(model.ChatMessageUser(content=attempt.told))
    with transcript.span("policy"):
        written = Exchange("", completion.text, completion.finish_reason, 0, completion.written, 0.0, 0.0)
        transcript.replied(policy, turns, written)
    if codes:
        transcript.add(event.InfoEvent, source="lint", data="\n".join(map(meaning, codes)))
    error = None if rollout.valid else f"{execution.outcome}: {execution.error}"
    with transcript.span("workflow"):
        for call in execution.calls:
            transcript.called(call, executor)
        if error:
            transcript.add(event.ErrorEvent, error=logs.EvalError(message=error, traceback=error, traceback_ansi=error))
    if rollout.verdict.exchanges:
        with transcript.span("judge"):
            transcript.exchanged(judge, rollout.verdict.exchanges)
    scores = _scores(logged)
    values = {name: "unscored" if score.value != score.value else score.value for name, score in scores.items()}
    verdict = Score(value=values, answer=execution.answer, explanation=scores["correct"].explanation)
    transcript.add(event.ScoreEvent, score=verdict, target=target, scorer="judge and reward")
    output = model.ModelOutput.from_content(policy, execution.answer or "")
    output.error = error
    return logs.EvalSample(
        id=id,
        epoch=epoch,
        input=question,
        target=target,
        messages=[*turns, model.ChatMessageAssistant(content=rollout.workflow, model=policy)],
        output=output,
        scores=scores,
        metadata={
            **picked(rollout.problem.question, "domain dataset"),
            **picked(execution, "shape outcome"),
            "operators": [call.name for call in execution.calls],
            "lint": codes,
            "advantage": logged.advantage,
            "executor_tokens": rollout.tokens,
            "completion_tokens": completion.written,
            "cost": rollout.cost,
        },
        events=transcript.events,
        model_usage=transcript.usage,
        total_time=rollout.seconds,
    )


def _log(
    task: str, policy: str, began: float, samples: Sequence[logs.EvalSample], metadata: Mapping[str, Any]
) -> logs.EvalLog:
    """Build a whole log; its results are the means of every score over the samples that have it."""
    usage: dict[str, model.ModelUsage] = {}
    values: dict[str, list[float]] = {}
    for sample in samples:
        for name, used in sample.model_usage.items():
            usage[name] = usage.get(name, model.ModelUsage()) + used
        for name, score in (sample.scores or {}).items():
            if name != "domain":
                number = float(score.value == "C") if isinstance(score.value, str) else score.as_float()
                values.setdefault(name, []).extend([number] if number == number else [])
    means = []
    for name, known in values.items():
        metrics = {"mean": logs.EvalMetric(name="mean", value=mean_known(known))} if known else {}
        means.append(logs.EvalScore(name=name, scorer=name, scored_samples=len(known), metrics=metrics))
    ids = list(dict.fromkeys(sample.id for sample in samples))
    spec = logs.EvalSpec(
        created=_moment(began).isoformat(),
        task=task,
        task_id=task,
        dataset=logs.EvalDataset(name=task, samples=len(ids), sample_ids=ids),
        model=policy,
        config=logs.EvalConfig(epochs=max((sample.epoch for sample in samples), default=1)),
        metadata=dict(metadata),
        viewer=ViewerConfig(trust_content=False),
    )
    results = logs.EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=means)
    stats = logs.EvalStats(started_at=spec.created, model_usage=usage)
    return logs.EvalLog(status="success", eval=spec, samples=list(samples), results=results, stats=stats)


def write_log(log: logs.EvalLog, path: Path) -> None:
    """Write a whole log or none. JSON takes a third of the time of Inspect's other format. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.part")
    logs.write_eval_log(log, half, format="json")
    os.replace(half, path)


def step_name(step: int) -> str:
    return f"step-{step:04d}"


def log_name(moment: float, what: str) -> str:
    """Make a name that ``inspect view`` recognises as a log; ``moment`` is in Unix seconds."""
    return f"{_moment(moment).strftime(_STAMP)}_{what}_{what.replace('-', '')}.json"


def time_of(file: Path) -> float:
    """Read the time in a log's name, in Unix seconds."""
    return datetime.strptime(file.name.split("_")[0], _STAMP).replace(tzinfo=timezone.utc).timestamp()


def _scores(logged: RolloutEvent) -> dict[str, Score]:
    """Return domain, verdict, official scores, reward and its terms, each a column; an evaluation has no reward."""
    rollout, verdict = logged.rollout, logged.rollout.verdict
    decided = f" (decided by {verdict.tier})" if verdict.tier != "none" else ""
    why: dict[str, str | None] = {"correct": f"{verdict.reason}{decided}"}
    correct = {True: "C", False: "I", None: None}[verdict.correct]
    values: dict[str, Any] = {"domain": rollout.problem.question.domain, "correct": correct, **verdict.scores}
    if logged.step:
        values["reward"] = rollout.reward.total
        why["reward"] = None if logged.advantage is None else f"advantage {logged.advantage:.4g}"
    scores = {}
    for name, value in {**values, **rollout.reward.terms}.items():
        about: dict[str, Any] = {"answer": rollout.execution.answer, "explanation": why.get(name)}
        shown = round(value, 4) if isinstance(value, float) else value
        scores[name] = Score.unscored(**about) if value is None else Score(value=shown, **about)
    return scores


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(time, timezone.utc)
