"""Spans received by an OpenTelemetry collector from the ``trace`` command."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.run_logs import HOSTILE, add_step, begin, hostile_group, write_run
from helpers.web import Handler, serving

from llm_as_judge.runlog import EventLog

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="OpenTelemetry is an extra: make peers installs it"
)

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps received spans by id, like a real backend."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: dict[bytes, Any] = {}
        self.refuses = False

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans.values() if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Receives(Handler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.raw())
            spans = [s for of in request.resource_spans for scope in of.scope_spans for s in scope.spans]
            if not found.refuses:
                found.spans |= {span.span_id: span for span in spans}
            self.send(400 if found.refuses else 200)

    with serving(Receives) as address:
        found.endpoint = f"{address}/v1/traces"
        yield found


def fields(span: Any) -> dict[str, Any]:
    values = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        values[item.key] = getattr(item.value, kind) if kind else None
    return values


def test_a_rollout_is_a_trace_with_calls_and_verdict(tmp_path: Path, collector: Collector, cli: CommandLine) -> None:
    words = ["trace", write_run(tmp_path / "nano/run.jsonl", steps=1), "--endpoint", collector.endpoint]
    cli(*words)
    whole = collector.named("invoke_workflow AnswerGenerate")
    assert len(whole) == 5 and len({span.trace_id for span in whole}) == 5
    members = {(fields(s)["gen_ai.conversation.id"], fields(s)["llm_as_judge.member"]): s for s in whole}
    right, wrong = members["math/p1", 1], members["math/p1", 2]
    mine = [span for span in collector.spans.values() if span.trace_id == right.trace_id]
    assert len(mine) == 4
    (call,) = (span for span in mine if span.name == "execute_tool AnswerGenerate")
    (chat,) = (span for span in mine if span.name == "chat nano-executor")
    (policy,) = (span for span in mine if span.name == "chat nano")
    assert call.parent_span_id == right.span_id == policy.parent_span_id and chat.parent_span_id == call.span_id
    assert json.loads(fields(call)["gen_ai.tool.call.arguments"]) == {"input": "Question math/p1?"}
    assert fields(chat)["gen_ai.usage.input_tokens"] == 90 and fields(chat)["gen_ai.usage.output_tokens"] == 10
    assert json.loads(fields(chat)["gen_ai.input.messages"])[0]["parts"][0]["content"] == "Asked: Question math/p1?"
    assert json.loads(fields(chat)["gen_ai.output.messages"])[0]["parts"][0]["content"] == "Reply to math/p1"
    assert "class Workflow" in fields(policy)["gen_ai.output.messages"]
    scores = {e["gen_ai.evaluation.name"]: e.get("gen_ai.evaluation.score.value") for e in map(fields, right.events)}
    assert scores == {"correct": 1.0, "reward": 9.25, "correctness": 10.0, "format": 7.5}
    assert right.end_time_unix_nano - right.start_time_unix_nano == pytest.approx(0.3e9)
    assert chat.end_time_unix_nano - chat.start_time_unix_nano == pytest.approx(0.2e9)
    (judged,) = collector.named("chat judge")
    assert judged.parent_span_id == wrong.span_id and fields(judged)["gen_ai.usage.input_tokens"] == 40
    before = set(collector.spans)
    cli(*words)
    assert set(collector.spans) == before, "sending again must reuse the ids"


def test_failures_are_errors_and_hostile_text_is_complete(
    tmp_path: Path, collector: Collector, cli: CommandLine
) -> None:
    path = tmp_path / "nano/run.jsonl"
    with EventLog(path) as log:
        begin(log)
        add_step(log, 1, [hostile_group()])
    words = ["trace", path, "--endpoint", collector.endpoint]
    cli(*words)
    (failed,) = (span for span in collector.spans.values() if fields(span).get("error.type") == "raised")
    whole = HOSTILE.replace("\ud800", "?")
    assert whole in failed.status.message
    asked = [json.loads(fields(s)["gen_ai.input.messages"]) for s in collector.named("chat nano-executor")]
    assert any(whole in messages[0]["parts"][0]["content"] for messages in asked)
    collector.refuses = True
    assert f"{collector.endpoint} accepted no spans" in cli.refused(*words)
