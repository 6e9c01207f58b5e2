"""Rollouts and evaluations as Inspect logs, for ``inspect view``.

A log is a step or an evaluation; a sample in it is a problem, an epoch of the sample a member of its group. Texts of
models and datasets are shown as plain text. The parts of a rollout are laid end to end, because a run's log contains
durations, not start times. The extra ``inspect`` installs Inspect.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import make_folder
from llm_as_judge.runlog import FinishedStep, json_data
from llm_as_judge.types import Exchange, OperatorCall
from llm_as_judge.workflow.lint.codes import CODES

try:
    from inspect_ai.event import (
        ErrorEvent,
        Event,
        InfoEvent,
        ModelEvent,
        ScoreEvent,
        SpanBeginEvent,
        SpanEndEvent,
        ToolEvent,
    )
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalError,
        EvalLog,
        EvalMetric,
        EvalResults,
        EvalSample,
        EvalScore,
        EvalSpec,
        EvalStats,
        write_eval_log,
    )
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        GenerateConfig,
        ModelOutput,
        ModelUsage,
    )
    from inspect_ai.scorer import Score
    from inspect_ai.viewer import ScoreColorScale, TaskSamplesColumn, TaskSamplesView, ViewerConfig
except ImportError as error:
    raise ConfigError(f"Inspect is an extra: python -m pip install 'llm-as-judge[inspect]' ({error})") from error

#: Format of the time at the start of a log's name.
_STAMP = "%Y-%m-%dT%H-%M-%S+00-00"
_POLICY, _EXECUTOR, _JUDGE = "policy", "executor", "judge"


@dataclass
class _Transcript:
    """Events laid end to end."""

    now: datetime

    def __post_init__(self) -> None:
        self.events: list[Event] = []
        self._spans: list[str] = []

    def begin(self, name: str, kind: str | None = None) -> None:
        id = f"{len(self.events)}-{name}"
        above = self._spans[-1] if self._spans else None
        self._add(SpanBeginEvent, id=id, name=name, type=kind, parent_id=above, span_id=id)
        self._spans.append(id)

    def end(self) -> None:
        id = self._spans.pop()
        self._add(SpanEndEvent, id=id, span_id=id)

    def add(self, kind: type[Any], seconds: float = 0.0, **fields: Any) -> None:
        span = self._spans[-1] if self._spans else None
        if seconds:
            fields |= {"completed": self.now + timedelta(seconds=seconds), "working_time": seconds}
        self._add(kind, span_id=span, **fields)
        self.now += timedelta(seconds=seconds)

    def _add(self, kind: type[Any], **fields: Any) -> None:
        # Without a name Inspect draws a random one, which takes longer than everything else here.
        self.events.append(kind(uuid=f"event-{len(self.events)}", timestamp=self.now, working_start=0.0, **fields))

    def asked(self, model: str, messages: Sequence[Any], reply: str, exchange: Exchange | None = None) -> None:
        """A model's reply, with the usage and duration of ``exchange``."""
        output = ModelOutput.from_content(model, reply, _stop(exchange.finish_reason if exchange else "stop"))
        if exchange:
            output.usage, output.time = _usage(exchange), exchange.seconds
        config = GenerateConfig()
        self.add(
            ModelEvent, exchange.seconds if exchange else 0.0, model=model, input=list(messages), tools=[],
            tool_choice="none", config=config, output=output,
        )  # fmt: skip

    def called(self, call: OperatorCall, executor: str) -> None:
        self.begin(call.name)
        asked = sum(exchange.seconds for exchange in call.exchanges)
        for exchange in call.exchanges:
            self.asked(executor, [ChatMessageUser(content=exchange.prompt)], exchange.reply, exchange)
        result = "\n\n".join(f"{name}: {value}" for name, value in call.result.items() if name != "parse_ok")
        self.add(
            ToolEvent, max(0.0, call.seconds - asked), id=f"call-{len(self.events)}", function=call.name,
            arguments=dict(call.arguments), result=result if not call.error else f"{result}\n\nerror: {call.error}",
        )  # fmt: skip
        self.end()


def step_log(step: FinishedStep) -> EvalLog:
    """The log of a training step."""
    run = step.run
    policy = run.setting("model", "model_name") or _POLICY
    executor = run.setting("executor", "model") or _EXECUTOR
    judge = run.setting("judge", "model") or _JUDGE
    members = Counter[str]()
    samples = []
    for rollout in step.rollouts:
        members[rollout.problem] += 1
        samples.append(_sample(rollout, members[rollout.problem], step, policy, executor, judge))
    scale = {name: ScoreColorScale(palette="good-high", min=-5, max=10) for name in step.report.terms}
    spec = _spec(
        step_name(step.report.step), policy, [r.time for r in step.rollouts], members,
        {"run": run.id, "executor": executor, **_figures(step)}, ["correct", "reward", *scale], scale,
    )  # fmt: skip
    return EvalLog(
        status="success",
        eval=spec,
        samples=samples,
        results=_results(samples),
        stats=_stats(spec, step, executor, judge),
    )


def _sample(
    rollout: RolloutEvent, member: int, step: FinishedStep, policy: str, executor: str, judge: str
) -> EvalSample:
    prompt = step.prompts.get(rollout.problem)
    asked: list[Any] = [ChatMessageSystem(content=step.system)] if step.system else []
    asked += [ChatMessageUser(content=prompt.user)] if prompt else []
    return _evaluated(
        rollout,
        [policy, executor, judge],
        asked,
        id=rollout.problem,
        epoch=member,
        input=(prompt.question or prompt.user) if prompt else rollout.problem,
        began=rollout.time - rollout.seconds,
    )


def _evaluated(
    rollout: RolloutEvent,
    models: Sequence[str],
    asked: Sequence[Any],
    *,
    id: str,
    epoch: int,
    input: str,
    began: float,
) -> EvalSample:
    """``models`` are policy, executor and judge; ``asked`` are the messages to the policy, ``began`` Unix seconds."""
    policy, executor, judge = models
    transcript = _Transcript(_moment(began))
    transcript.begin("policy")
    transcript.asked(policy, asked, rollout.text)
    transcript.end()
    if rollout.lint:
        found = [f"{code} {CODES[code][0]}" if code in CODES else code for code in rollout.lint]
        transcript.add(InfoEvent, source="lint", data="\n".join(found))
    transcript.begin("workflow")
    for call in rollout.calls:
        transcript.called(call, executor)
    error = None if rollout.outcome == "finished" else f"{rollout.outcome}: {rollout.error}"
    if error:
        transcript.add(ErrorEvent, error=EvalError(message=error, traceback=error, traceback_ansi=error))
    transcript.end()
    if rollout.judged:
        transcript.begin("judge")
        for exchange in rollout.judged:
            transcript.asked(judge, [ChatMessageUser(content=exchange.prompt)], exchange.reply, exchange)
        transcript.end()
    scores = _scores(rollout)
    values = {name: "unscored" if score.value != score.value else score.value for name, score in scores.items()}
    verdict = Score(value=values, answer=rollout.answer, explanation=scores["correct"].explanation)
    transcript.add(ScoreEvent, score=verdict, target=list(rollout.reference), scorer="judge and reward")
    output = ModelOutput.from_content(policy, rollout.answer or "")
    output.error = error
    metadata = (
        "domain", "dataset", "shape", "outcome", "operators", "lint", "advantage", "executor_tokens",
        "completion_tokens", "cost",
    )  # fmt: skip
    return EvalSample(
        id=id,
        epoch=epoch,
        input=input,
        target=list(rollout.reference),
        messages=[*asked, ChatMessageAssistant(content=rollout.source, model=policy)],
        output=output,
        scores=scores,
        metadata={name: json_data(getattr(rollout, name)) for name in metadata},
        events=transcript.events,
        model_usage=_usages([rollout], executor, judge),
        total_time=rollout.seconds,
        working_time=rollout.seconds,
    )


def records_log(records: Sequence[RolloutEvent], name: str, model: str, moment: float) -> EvalLog:
    """The log of an evaluation; ``moment`` is when its file was last written (Unix seconds)."""
    samples = [
        _evaluated(
            record,
            [model, _EXECUTOR, _JUDGE],
            (),
            id=f"{record.index + 1} {record.problem}",
            epoch=record.sample + 1,
            input=record.problem,
            began=moment,
        )
        for record in records
    ]
    columns = ["correct", *dict.fromkeys(name for record in records for name in record.scores)]
    ids = Counter(str(sample.id) for sample in samples)
    spec = _spec(name, model, [moment], ids, {"evaluation": name}, columns, {})
    return EvalLog(status="success", eval=spec, samples=samples, results=_results(samples))


def write_log(log: EvalLog, path: Path) -> None:
    """Writes a whole log or none. JSON takes a third of the time of Inspect's other format. Raises ``OSError``."""
    make_folder(path.parent)
    half = path.with_name(f".{path.name}.part")
    write_eval_log(log, half, format="json")
    os.replace(half, path)


def step_name(step: int) -> str:
    return f"step-{step:04d}"


def announce(path: Path) -> None:
    """Makes open viewers reload; without effect in versions of Inspect that cannot."""
    with suppress(ImportError):
        from inspect_ai._view.notify import view_notify_eval

        view_notify_eval(str(path))


def log_name(moment: float, what: str) -> str:
    """A name that ``inspect view`` recognises as a log; ``moment`` is in Unix seconds."""
    stamp = _moment(moment).strftime(_STAMP)
    return f"{stamp}_{what}_{what.replace('-', '')}.json"


def _spec(
    task: str, model: str, times: Sequence[float], members: Counter[str], metadata: Mapping[str, Any],
    scores: Sequence[str], scale: Mapping[str, ScoreColorScale],
) -> EvalSpec:  # fmt: skip
    own = ("sampleStatus", "sampleId", "epoch", "input", "target", "answer", "tokens", "duration", "error")
    columns = [TaskSamplesColumn(id=name) for name in own[:6]]
    columns += [TaskSamplesColumn.score(name) for name in scores]
    columns += [TaskSamplesColumn(id=name) for name in own[6:]]
    view = TaskSamplesView(name="rollouts", columns=columns, multiline=False, score_color_scales=scale or None)
    return EvalSpec(
        created=_moment(min(times, default=0.0)).isoformat(),
        task=task,
        task_id=task,
        dataset=EvalDataset(name=task, samples=len(members), sample_ids=list(members)),
        model=model,
        config=EvalConfig(epochs=max(members.values(), default=1)),
        metadata=dict(metadata),
        viewer=ViewerConfig(trust_content=False, task_samples_view=view),
    )


def time_of(file: Path) -> float:
    """The time in a log's name, in Unix seconds."""
    return datetime.strptime(file.name.split("_")[0], _STAMP).replace(tzinfo=timezone.utc).timestamp()


def _scores(rollout: RolloutEvent) -> dict[str, Score]:
    """Verdict, official scores, reward and its terms; an evaluation has no reward."""
    tier, answer = rollout.tier, rollout.answer
    explanation = f"{rollout.reason} (decided by {tier})" if tier != "none" else rollout.reason
    if rollout.correct is None:
        scores = {"correct": Score.unscored(answer=answer, explanation=explanation)}
    else:
        scores = {"correct": Score(value="C" if rollout.correct else "I", answer=answer, explanation=explanation)}
    scores |= {name: _score(value) for name, value in rollout.scores.items()}
    if rollout.step:
        advantage = None if rollout.advantage is None else f"advantage {rollout.advantage:.4g}"
        scores["reward"] = _score(rollout.reward, advantage)
    return scores | {term: _score(value) for term, value in rollout.terms.items()}


def _score(value: float | None, explanation: str | None = None) -> Score:
    if value is None:
        return Score.unscored(explanation=explanation)
    return Score(value=round(value, 4), explanation=explanation)


def _results(samples: Sequence[EvalSample]) -> EvalResults:
    """Means of every score over the samples that have it."""
    means = []
    for name in dict.fromkeys(name for sample in samples for name in sample.scores or {}):
        values = [_number((sample.scores or {})[name].value) for sample in samples if name in (sample.scores or {})]
        known = [value for value in values if value == value]
        metric = "accuracy" if name == "correct" else "mean"
        means.append(
            EvalScore(
                name=name,
                scorer=name,
                scored_samples=len(known),
                unscored_samples=len(values) - len(known),
                metrics={metric: EvalMetric(name=metric, value=sum(known) / len(known))} if known else {},
            )
        )
    return EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=means)


def _number(value: Any) -> float:
    return {"C": 1.0, "I": 0.0}[value] if isinstance(value, str) else float(value)


def _stats(spec: EvalSpec, step: FinishedStep, executor: str, judge: str) -> EvalStats:
    done = _moment(max((rollout.time for rollout in step.rollouts), default=0.0)).isoformat()
    return EvalStats(started_at=spec.created, completed_at=done, model_usage=_usages(step.rollouts, executor, judge))


def _usages(rollouts: Sequence[RolloutEvent], executor: str, judge: str) -> dict[str, ModelUsage]:
    """Usage of the executor and of the judge, which may be the same model."""
    usages = {executor: ModelUsage()}
    for rollout in rollouts:
        for call in rollout.calls:
            for exchange in call.exchanges:
                usages[executor] += _usage(exchange)
        for exchange in rollout.judged:
            usages[judge] = usages.get(judge, ModelUsage()) + _usage(exchange)
    return usages


def _usage(exchange: Exchange) -> ModelUsage:
    read, written = exchange.prompt_tokens, exchange.completion_tokens
    return ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _stop(reason: str) -> Any:
    return "max_tokens" if reason == "length" else "stop"


def _figures(step: FinishedStep) -> dict[str, Any]:
    report = step.report
    return {name: json_data(getattr(report, name)) for name in report.__struct_fields__ if name != "time"}


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(time, timezone.utc)
