"""Rollouts as OpenTelemetry spans with the conventions for generative AI, for Phoenix, Langfuse, Jaeger and others.

A trace is a rollout: a span for the policy's reply and for each operator call, with a child span for each exchange with
the executor; verdict and reward terms are evaluation events. Ids are derived from the rollout, so sending it again
does not duplicate it. The parts of a rollout are laid end to end, because a run's log contains durations, not start
times. The extra ``otel`` installs OpenTelemetry.

Conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.errors import ConfigError, InfrastructureError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.runlog import FinishedStep
from llm_as_judge.types import Exchange, OperatorCall

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
except ImportError as error:
    raise ConfigError(f"OpenTelemetry is an extra: python -m pip install 'llm-as-judge[otel]' ({error})") from error

_SECOND = 1_000_000_000  # nanoseconds


class _Ids(IdGenerator):
    def begin(self, of: str) -> None:
        self._of, self._spans = of, 0

    def generate_trace_id(self) -> int:
        return self._digest("trace", 16)

    def generate_span_id(self) -> int:
        self._spans += 1
        return self._digest(f"span {self._spans}", 8)

    def _digest(self, what: str, size: int) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._of} {what}".encode()).digest()[:size], "big") or 1


@dataclass
class Spans:
    """Sends steps to ``exporter``, by default an OTLP endpoint over HTTP: ``endpoint``, else
    ``OTEL_EXPORTER_OTLP_ENDPOINT``, else port 4318 of this machine.
    """

    endpoint: str | None = None
    exporter: SpanExporter | None = None
    _ids: _Ids = field(default_factory=_Ids)
    _ended: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    _now: int = 0  # nanoseconds
    _above: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._to = self.exporter or OTLPSpanExporter(endpoint=self.endpoint)
        resource = Resource.create({"service.name": "llm-as-judge"})
        provider = TracerProvider(resource=resource, id_generator=self._ids)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._tracer = provider.get_tracer("llm-as-judge")

    def send(self, step: FinishedStep) -> int:
        """Sends the rollouts of a step and returns their number; raises ``InfrastructureError`` if that fails."""
        members = Counter[str]()
        for rollout in step.rollouts:
            members[rollout.problem] += 1
            self._ids.begin(f"{step.run.id} {step.report.step} {rollout.problem} {members[rollout.problem]}")
            self._rollout(rollout, members[rollout.problem], step)
        sent = self._ended.get_finished_spans()
        self._ended.clear()
        if sent and self._to.export(sent) is not SpanExportResult.SUCCESS:
            where = getattr(self._to, "_endpoint", None) or self.endpoint or "the endpoint"
            raise InfrastructureError(f"{where} accepted no spans; start a collector or choose another --endpoint")
        return len(step.rollouts)

    def close(self) -> None:
        self._to.shutdown()

    def _rollout(self, rollout: RolloutEvent, member: int, step: FinishedStep) -> None:
        run = step.run
        executor = run.setting("executor", "model") or "executor"
        self._now = int((rollout.time - rollout.seconds) * _SECOND)
        attributes = {
            "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": rollout.shape or "no operator",
            "gen_ai.conversation.id": rollout.problem, "llm_as_judge.run": run.id,
            "llm_as_judge.step": step.report.step,
            "llm_as_judge.member": member, "llm_as_judge.domain": rollout.domain,
            "llm_as_judge.dataset": rollout.dataset, "llm_as_judge.outcome": rollout.outcome,
            "llm_as_judge.cost": rollout.cost, "llm_as_judge.lint": list(rollout.lint),
        }  # fmt: skip
        with self._span(f"invoke_workflow {rollout.shape or 'no operator'}", attributes) as span:
            self._policy(rollout, step)
            for call in rollout.calls:
                self._call(call, executor)
            if rollout.outcome != "finished":
                span.set_status(Status(StatusCode.ERROR, f"{rollout.outcome}: {rollout.error}"))
                span.set_attribute("error.type", rollout.outcome)
            for exchange in rollout.judged:
                self._exchange(exchange, run.setting("judge", "model") or "judge")
            self._judged(span, rollout)

    def _policy(self, rollout: RolloutEvent, step: FinishedStep) -> None:
        model, prompt = step.run.setting("model", "model_name") or "policy", step.prompts.get(rollout.problem)
        attributes = _chat(model, prompt.user if prompt else "", rollout.text, rollout.finish_reason or "stop")
        if step.system:
            attributes["gen_ai.system_instructions"] = _json([{"type": "text", "content": step.system}])
        attributes["gen_ai.usage.output_tokens"] = rollout.completion_tokens
        with self._span(f"chat {model}", attributes, SpanKind.CLIENT):
            pass

    def _call(self, call: OperatorCall, executor: str) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": _json(call.arguments), "gen_ai.tool.call.result": _json(call.result),
        }  # fmt: skip
        with self._span(f"execute_tool {call.name}", attributes) as span:
            began = self._now
            for exchange in call.exchanges:
                self._exchange(exchange, executor)
            self._now = max(self._now, began + int(call.seconds * _SECOND))
            if call.error:
                span.set_status(Status(StatusCode.ERROR, call.error))

    def _exchange(self, exchange: Exchange, executor: str) -> None:
        attributes = _chat(executor, exchange.prompt, exchange.reply, exchange.finish_reason)
        attributes |= {
            "gen_ai.usage.input_tokens": exchange.prompt_tokens,
            "gen_ai.usage.output_tokens": exchange.completion_tokens,
        }
        with self._span(f"chat {executor}", attributes, SpanKind.CLIENT):
            self._now += int(exchange.seconds * _SECOND)

    def _judged(self, span: Span, rollout: RolloutEvent) -> None:
        label = {True: "right", False: "wrong", None: "unscored"}[rollout.correct]
        correct = None if rollout.correct is None else float(rollout.correct)
        results: list[tuple[str, float | None, str | None, str]] = [
            ("correct", correct, label, rollout.reason),
            *((name, value, None, "") for name, value in {"reward": rollout.reward, **rollout.terms}.items()),
        ]
        for name, value, shown, reason in results:
            attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
            attributes |= {"gen_ai.evaluation.score.label": shown, "gen_ai.evaluation.explanation": reason or None}
            known = {key: item for key, item in attributes.items() if item is not None}
            span.add_event("gen_ai.evaluation.result", known, timestamp=self._now)

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, Any], kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
        context = set_span_in_context(self._above[-1]) if self._above else None
        span = self._tracer.start_span(name, context, kind, dict(attributes), start_time=self._now)
        self._above.append(span)
        try:
            yield span
        finally:
            self._above.pop()
            span.end(self._now)


def _chat(model: str, prompt: str, reply: str, finish: str) -> dict[str, Any]:
    asked = [{"role": "user", "parts": [{"type": "text", "content": prompt}]}]
    answered = [{"role": "assistant", "parts": [{"type": "text", "content": reply}], "finish_reason": finish}]
    return {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.input.messages": _json(asked),
        "gen_ai.output.messages": _json(answered), "gen_ai.response.finish_reasons": [finish],
    }  # fmt: skip


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
