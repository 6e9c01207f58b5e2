"""Rollouts as OpenTelemetry spans with the conventions for generative AI, for Phoenix, Langfuse, Jaeger and others.

A trace is a rollout: a span for the policy's reply and for each operator call, with a child span for each exchange with
the executor; verdict and reward terms are evaluation events. Ids are derived from the rollout, so sending it again
does not duplicate it. The parts of a rollout are laid end to end, because a run's log contains durations, not start
times. The extra ``otel`` installs OpenTelemetry.

Conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.errors import ConfigError, InfrastructureError
from llm_as_judge.events import RolloutEvent
from llm_as_judge.runlog import FinishedStep
from llm_as_judge.types import Exchange

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context
except ImportError as error:
    raise ConfigError(f"OpenTelemetry is an extra: python -m pip install 'llm-as-judge[otel]' ({error})") from error

_SECOND = 1_000_000_000  # nanoseconds


class _Ids(IdGenerator):
    """Ids by the rollout ``of`` and the number of the span in it."""

    of, spans = "", 0

    def generate_trace_id(self) -> int:
        return self._digest("trace", 16)

    def generate_span_id(self) -> int:
        self.spans += 1
        return self._digest(f"span {self.spans}", 8)

    def _digest(self, what: str, size: int) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.of} {what}".encode()).digest()[:size], "big") or 1


@dataclass
class Spans:
    """Sends steps to an OTLP endpoint over HTTP: ``endpoint``, else ``OTEL_EXPORTER_OTLP_ENDPOINT``, else port 4318 of
    this machine.
    """

    endpoint: str | None = None
    _ids: _Ids = field(default_factory=_Ids)
    _ended: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    _now: int = 0  # nanoseconds
    _above: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._to: SpanExporter = OTLPSpanExporter(endpoint=self.endpoint)
        resource = Resource.create({"service.name": "llm-as-judge"})
        provider = TracerProvider(resource=resource, id_generator=self._ids)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._tracer = provider.get_tracer("llm-as-judge")

    def send(self, step: FinishedStep) -> int:
        """Sends the rollouts of a step and returns their number; raises ``InfrastructureError`` if that fails."""
        for rollout, member, prompt in step.members():
            self._ids.of = f"{step.run.id} {step.report.step} {rollout.problem} {member}"
            self._ids.spans, self._now = 0, int(max(0.0, rollout.time - rollout.seconds) * _SECOND)
            self._rollout(rollout, member, prompt.user, step)
        sent = self._ended.get_finished_spans()
        self._ended.clear()
        if sent and self._to.export(sent) is not SpanExportResult.SUCCESS:
            where = getattr(self._to, "_endpoint", None) or self.endpoint or "the endpoint"
            raise InfrastructureError(f"{where} accepted no spans; start a collector or choose another --endpoint")
        return len(step.rollouts)

    def close(self) -> None:
        self._to.shutdown()

    def _rollout(self, rollout: RolloutEvent, member: int, prompt: str, step: FinishedStep) -> None:
        run, (policy, executor, judge) = step.run, step.run.models
        own: dict[str, Any] = {
            "run": run.id, "step": step.report.step, "member": member, "domain": rollout.domain,
            "dataset": rollout.dataset, "outcome": rollout.outcome, "cost": rollout.cost, "lint": list(rollout.lint),
        }  # fmt: skip
        shape = rollout.shape or "no operator"
        attributes = {"workflow.name": shape, "conversation.id": rollout.problem}
        with self._span("invoke_workflow", shape, attributes) as span:
            span.set_attributes({f"llm_as_judge.{name}": value for name, value in own.items()})
            written = Exchange(prompt, rollout.text, rollout.finish_reason, 0, rollout.completion_tokens, 0, 0)
            self._chat(policy, written, step.system)
            for call in rollout.calls:
                arguments, result = _json(call.arguments), _json(call.result)
                called = {"tool.name": call.name, "tool.call.arguments": arguments, "tool.call.result": result}
                with self._span("execute_tool", call.name, called) as inner:
                    began = self._now
                    for exchange in call.exchanges:
                        self._chat(executor, exchange)
                    self._now = max(self._now, began + int(call.seconds * _SECOND))
                    if call.error:
                        inner.set_status(Status(StatusCode.ERROR, call.error))
            if rollout.outcome != "finished":
                span.set_status(Status(StatusCode.ERROR, f"{rollout.outcome}: {rollout.error}"))
                span.set_attribute("error.type", rollout.outcome)
            for exchange in rollout.judged:
                self._chat(judge, exchange)
            correct = None if rollout.correct is None else float(rollout.correct)
            for name, value in {"correct": correct, "reward": rollout.reward, **rollout.terms}.items():
                evaluation = {"name": name} | ({} if value is None else {"score.value": value})
                evaluation |= {"explanation": rollout.reason} if name == "correct" and rollout.reason else {}
                named = {f"gen_ai.evaluation.{key}": item for key, item in evaluation.items()}
                span.add_event("gen_ai.evaluation.result", named, timestamp=self._now)

    def _chat(self, model: str, exchange: Exchange, system: str = "") -> None:
        """One reply of a model, after which the clock is ``exchange.seconds`` later."""
        attributes: dict[str, Any] = {
            "request.model": model,
            "input.messages": _json([{"role": "user", "parts": _parts(exchange.prompt)}]),
            "output.messages": _json([{"role": "assistant", "parts": _parts(exchange.reply)}]),
            "response.finish_reasons": [exchange.finish_reason or "stop"],
            "usage.output_tokens": exchange.completion_tokens,
        }
        if exchange.prompt_tokens:  # those of the policy are not logged
            attributes["usage.input_tokens"] = exchange.prompt_tokens
        if system:
            attributes["system_instructions"] = _json(_parts(system))
        with self._span("chat", model, attributes):
            self._now += int(exchange.seconds * _SECOND)

    @contextmanager
    def _span(self, operation: str, name: str, attributes: dict[str, Any]) -> Iterator[Span]:
        context = set_span_in_context(self._above[-1]) if self._above else None
        named = {f"gen_ai.{key}": value for key, value in {"operation.name": operation, **attributes}.items()}
        span = self._tracer.start_span(f"{operation} {name}", context, attributes=named, start_time=self._now)
        self._above.append(span)
        yield span
        self._above.pop()
        span.end(self._now)


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "content": text}]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
