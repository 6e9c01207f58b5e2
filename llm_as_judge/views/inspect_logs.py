"""Rollouts and evaluations as Inspect logs, for ``inspect view``.

A log is a step or an evaluation; a sample in it is a problem, an epoch of the sample a member of its group. Texts of
models and datasets are shown as plain text. The parts of a rollout are laid end to end, because a run's log contains
durations, not start times. The extra ``inspect`` installs Inspect.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.metrics import mean_known
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import make_folder
from llm_as_judge.runlog import FinishedStep, json_data
from llm_as_judge.types import Exchange, OperatorCall
from llm_as_judge.workflow.lint.codes import CODES

try:
    from inspect_ai import event, model
    from inspect_ai import log as logs
    from inspect_ai.scorer import Score
    from inspect_ai.viewer import ViewerConfig
except ImportError as error:
    raise ConfigError(f"Inspect is an extra: python -m pip install 'llm-as-judge[inspect]' ({error})") from error

#: Format of the time at the start of a log's name.
_STAMP = "%Y-%m-%dT%H-%M-%S+00-00"
_METADATA = (
    "domain", "dataset", "shape", "outcome", "operators", "lint", "advantage", "executor_tokens", "completion_tokens",
    "cost",
)  # fmt: skip


@dataclass
class _Transcript:
    """Events of a rollout, laid end to end; policy, executor and judge are names of models."""

    now: datetime
    policy: str
    executor: str
    judge: str
    events: list[event.Event] = field(default_factory=list, init=False)
    usage: dict[str, model.ModelUsage] = field(default_factory=dict, init=False)
    _spans: list[str] = field(default_factory=list, init=False)

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

    def replied(self, name: str, messages: Sequence[Any], reply: str, finish: str = "stop", seconds: float = 0.0,
                usage: model.ModelUsage | None = None) -> None:  # fmt: skip
        """A model's reply to ``messages``."""
        output = model.ModelOutput.from_content(name, reply, "max_tokens" if finish == "length" else "stop")
        output.usage, output.time = usage, seconds or None
        self.add(
            event.ModelEvent, seconds, model=name, input=list(messages), tools=[], tool_choice="none",
            config=model.GenerateConfig(), output=output,
        )  # fmt: skip

    def exchanged(self, name: str, exchange: Exchange) -> None:
        read, written = exchange.prompt_tokens, exchange.completion_tokens
        usage = model.ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        self.usage[name] = self.usage.get(name, model.ModelUsage()) + usage
        asked = [model.ChatMessageUser(content=exchange.prompt)]
        self.replied(name, asked, exchange.reply, exchange.finish_reason, exchange.seconds, usage)

    def called(self, call: OperatorCall) -> None:
        with self.span(call.name):
            for exchange in call.exchanges:
                self.exchanged(self.executor, exchange)
            result = "\n\n".join(f"{name}: {value}" for name, value in call.result.items() if name != "parse_ok")
            own = max(0.0, call.seconds - sum(exchange.seconds for exchange in call.exchanges))
            self.add(
                event.ToolEvent, own, id=f"call-{len(self.events)}", function=call.name,
                arguments=dict(call.arguments), result=f"{result}\n\nerror: {call.error}" if call.error else result,
            )  # fmt: skip


def step_log(step: FinishedStep) -> logs.EvalLog:
    run, report, members, samples = step.run, step.report, Counter[str](), []
    models = [run.setting("model", "model_name") or "policy"]
    models += [run.setting(role, "model") or role for role in ("executor", "judge")]
    for rollout in step.rollouts:
        members[rollout.problem] += 1
        prompt = step.prompts.get(rollout.problem)
        asked: list[Any] = [model.ChatMessageSystem(content=step.system)] if step.system else []
        asked += [model.ChatMessageUser(content=prompt.user)] if prompt else []
        question = (prompt.question or prompt.user) if prompt else rollout.problem
        transcript = _Transcript(_moment(rollout.time - rollout.seconds), *models)
        samples.append(_sample(rollout, transcript, asked, rollout.problem, members[rollout.problem], question))
    figures = {name: json_data(getattr(report, name)) for name in report.__struct_fields__ if name != "time"}
    began = min((rollout.time for rollout in step.rollouts), default=0.0)
    return _log(step_name(report.step), models[0], began, samples, {"run": run.id, "executor": models[1], **figures})


def records_log(records: Sequence[RolloutEvent], name: str, policy: str, moment: float) -> logs.EvalLog:
    """The log of an evaluation; ``moment`` is when its file was last written (Unix seconds)."""
    samples = []
    for record in records:
        transcript = _Transcript(_moment(moment), policy, "executor", "judge")
        id = f"{record.index + 1} {record.problem}"
        samples.append(_sample(record, transcript, (), id, record.sample + 1, record.problem))
    return _log(name, policy, moment, samples, {"evaluation": name})


def _sample(
    rollout: RolloutEvent, transcript: _Transcript, asked: Sequence[Any], id: str, epoch: int, question: str
) -> logs.EvalSample:
    """``asked`` are the messages to the policy."""
    with transcript.span("policy"):
        transcript.replied(transcript.policy, asked, rollout.text)
    if rollout.lint:
        found = [f"{code} {CODES[code][0]}" if code in CODES else code for code in rollout.lint]
        transcript.add(event.InfoEvent, source="lint", data="\n".join(found))
    error = None if rollout.outcome == "finished" else f"{rollout.outcome}: {rollout.error}"
    with transcript.span("workflow"):
        for call in rollout.calls:
            transcript.called(call)
        if error:
            shown = logs.EvalError(message=error, traceback=error, traceback_ansi=error)
            transcript.add(event.ErrorEvent, error=shown)
    if rollout.judged:
        with transcript.span("judge"):
            for exchange in rollout.judged:
                transcript.exchanged(transcript.judge, exchange)
    scores = _scores(rollout)
    values = {name: "unscored" if score.value != score.value else score.value for name, score in scores.items()}
    verdict = Score(value=values, answer=rollout.answer, explanation=scores["correct"].explanation)
    transcript.add(event.ScoreEvent, score=verdict, target=list(rollout.reference), scorer="judge and reward")
    output = model.ModelOutput.from_content(transcript.policy, rollout.answer or "")
    output.error = error
    return logs.EvalSample(
        id=id,
        epoch=epoch,
        input=question,
        target=list(rollout.reference),
        messages=[*asked, model.ChatMessageAssistant(content=rollout.source, model=transcript.policy)],
        output=output,
        scores=scores,
        metadata={name: json_data(getattr(rollout, name)) for name in _METADATA},
        events=transcript.events,
        model_usage=transcript.usage,
        total_time=rollout.seconds,
        working_time=rollout.seconds,
    )


def _log(
    task: str, policy: str, began: float, samples: Sequence[logs.EvalSample], metadata: Mapping[str, Any]
) -> logs.EvalLog:
    """A whole log; its results are the means of every score over the samples that have it."""
    usage: dict[str, model.ModelUsage] = {}
    values: dict[str, list[float]] = {}
    for sample in samples:
        for name, used in sample.model_usage.items():
            usage[name] = usage.get(name, model.ModelUsage()) + used
        for name, score in (sample.scores or {}).items():
            if name == "domain":
                continue
            values.setdefault(name, []).append(
                {"C": 1.0, "I": 0.0}[score.value] if isinstance(score.value, str) else score.as_float()
            )
    means = []
    for name, all_values in values.items():
        known = [value for value in all_values if value == value]
        metric = logs.EvalMetric(name="mean", value=mean_known(known))
        means.append(
            logs.EvalScore(
                name=name, scorer=name, scored_samples=len(known), unscored_samples=len(all_values) - len(known),
                metrics={"mean": metric} if known else {},
            )
        )  # fmt: skip
    ids = list(dict.fromkeys(str(sample.id) for sample in samples))
    spec = logs.EvalSpec(
        created=_moment(began).isoformat(),
        task=task,
        task_id=task,
        dataset=logs.EvalDataset(name=task, samples=len(ids), sample_ids=list(ids)),
        model=policy,
        config=logs.EvalConfig(epochs=max((sample.epoch for sample in samples), default=1)),
        metadata=dict(metadata),
        viewer=ViewerConfig(trust_content=False),
    )
    results = logs.EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=means)
    stats = logs.EvalStats(started_at=spec.created, model_usage=usage)
    return logs.EvalLog(status="success", eval=spec, samples=list(samples), results=results, stats=stats)


def write_log(log: logs.EvalLog, path: Path) -> None:
    """Writes a whole log or none. JSON takes a third of the time of Inspect's other format. Raises ``OSError``."""
    make_folder(path.parent)
    half = path.with_name(f".{path.name}.part")
    logs.write_eval_log(log, half, format="json")
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


def time_of(file: Path) -> float:
    """The time in a log's name, in Unix seconds."""
    return datetime.strptime(file.name.split("_")[0], _STAMP).replace(tzinfo=timezone.utc).timestamp()


def _scores(rollout: RolloutEvent) -> dict[str, Score]:
    """Domain, verdict, official scores, reward and its terms, each a column; an evaluation has no reward."""
    tier = rollout.tier
    why: dict[str, str | None] = {
        "correct": f"{rollout.reason} (decided by {tier})" if tier != "none" else rollout.reason
    }
    correct = {True: "C", False: "I", None: None}[rollout.correct]
    values: dict[str, Any] = {"domain": rollout.domain, "correct": correct, **rollout.scores}
    if rollout.step:
        values["reward"] = rollout.reward
        why["reward"] = None if rollout.advantage is None else f"advantage {rollout.advantage:.4g}"
    scores = {}
    for name, value in {**values, **rollout.terms}.items():
        about: dict[str, Any] = {"answer": rollout.answer, "explanation": why.get(name)}
        shown = round(value, 4) if isinstance(value, float) else value
        scores[name] = Score.unscored(**about) if value is None else Score(value=shown, **about)
    return scores


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(time, timezone.utc)
