"""A run's rollouts as Inspect reads them back: samples, scores, prompts and replies, of growing and resumed runs."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.run_logs import HOSTILE, add_step, group, hostile_group, log_steps, write_run

from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.runlog import EventLog
from llm_as_judge.types import Attempt

pytest.importorskip("inspect_ai", reason="Inspect is an extra: make peers installs it")

from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log, resolve_sample_attachments

from llm_as_judge.commands.view import InspectLogs


def logs_in(folder: Path) -> dict[str, EvalLog]:
    """The logs that Inspect finds, by task."""
    found = [read_eval_log(info) for info in list_eval_logs(str(folder))]
    return {log.eval.task: log for log in found}


def of(path: Path) -> InspectLogs:
    return InspectLogs(path, path.parent / "evaluation")


def events(sample: Any, kind: str) -> list[Any]:
    return [event for event in resolve_sample_attachments(sample).events if event.event == kind]


def test_a_step_is_a_log_of_rollouts_with_scores_prompts_calls_and_verdicts(tmp_path: Path) -> None:
    logs = of(write_run(tmp_path / "nano/run.jsonl"))
    assert len(logs.update()) == 2 and not logs.update()
    found = logs_in(logs.folder)
    assert set(found) == {"step-0001", "step-0002"}
    log = found["step-0002"]
    assert (log.status, log.eval.model, (log.eval.metadata or {})["step"]) == ("success", "nano", 2)
    samples = {(sample.id, sample.epoch): sample for sample in log.samples or []}
    assert set(samples) == {("math/p2", 1), ("math/p2", 2), ("math/p2", 3), ("code/q", 1), ("code/q", 2)}
    right, wrong, unscored = (samples["math/p2", member] for member in (1, 2, 3))
    assert right.input == "Question math/p2?" and right.target == ["answer math/p2"]
    scores = {"domain": "math", "correct": "C", "reward": 9.25, "correctness": 10.0, "format": 7.5}
    scores |= {"flexible-extract": 0.0, "strict-match": 0.0}
    assert {name: score.value for name, score in right.scores.items()} == scores
    assert wrong.scores["correct"].value == "I" and wrong.scores["correctness"].value == -5.0
    assert math.isnan(unscored.scores["correct"].value) and math.isnan(unscored.scores["reward"].value)
    assert "the provider was down" in (unscored.scores["correct"].explanation or "")
    means = {score.name: next(iter(score.metrics.values())).value for score in log.results.scores}
    assert "domain" not in means and means["correct"] == 3 / 4 and means["reward"] == (3 * 9.25 - 2) / 4
    policy, executor = events(right, "model")
    assert [message.text for message in policy.input] == ["Write a workflow.", "Asked: Question math/p2?"]
    assert "class Workflow" in policy.output.completion and executor.input[0].text == "Asked: Question math/p2?"
    assert (executor.model, executor.output.completion) == ("nano-executor", "Reply to math/p2")
    assert [event.name for event in events(right, "span_begin")] == ["policy", "workflow", "AnswerGenerate"]
    (call,), (score,) = events(right, "tool"), events(right, "score")
    assert (call.function, call.arguments) == ("AnswerGenerate", {"input": "Question math/p2?"})
    assert score.score.value == scores
    begun = [event.timestamp for event in right.events]
    assert begun == sorted(begun) and (begun[-1] - begun[0]).total_seconds() == pytest.approx(0.3, abs=1e-3)
    *_, judge = events(wrong, "model")  # judged by a model
    assert (judge.model, judge.output.completion, judge.output.usage.total_tokens) == ("judge", "No. ", 42)
    assert wrong.model_usage["judge"].total_tokens == 42 and wrong.model_usage["nano-executor"].total_tokens == 100


def test_a_repaired_workflow_is_shown_with_its_turns(tmp_path: Path) -> None:
    path, made = tmp_path / "nano/run.jsonl", group("p1", True)
    last = made.rollouts[0]
    failed = Attempt("class Workflow: ...", replace(last.execution, outcome="raised", error="KeyError"), "It raised.")
    logs = of(log_steps(path, [replace(made, rollouts=(replace(last, attempts=(failed,)), *made.rollouts[1:]))]))
    logs.update()
    sample = (logs_in(logs.folder)["step-0001"].samples or [])[0]
    texts = [message.text for message in sample.messages]
    assert texts[-3:-1] == ["class Workflow: ...", "It raised."] and "class Workflow" in texts[-1]
    first, _, second, _ = events(sample, "model")
    assert len(second.input) == len(first.input) + 2 and second.input[-1].text == "It raised."
    names = [event.name for event in events(sample, "span_begin")]
    assert names == ["policy", "failed attempt", "AnswerGenerate", "policy", "workflow", "AnswerGenerate"]


def test_steps_repeated_by_a_resumed_run_replace_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "nano/run.jsonl", 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    logs = of(log_steps(path, *([group(f"first{step}", True)] for step in (1, 2, 3))))
    assert len(logs.update()) == 3
    assert of(path).update() == [], "only new steps are written"
    now += 100
    log_steps(path, resumed_from="checkpoints/nano/run/step_1")
    logs.update()
    assert set(logs_in(logs.folder)) == {"step-0001"}
    with EventLog(path) as log:
        add_step(log, 2, [group("second2", True)])
    for fresh in (logs, of(path)):
        fresh.update()
        assert {task: (found.samples or [])[0].id for task, found in logs_in(logs.folder).items()} == {
            "step-0001": "math/first1",
            "step-0002": "math/second2",
        }


def test_hostile_text_is_kept_and_marked_as_untrusted(tmp_path: Path) -> None:
    logs = of(log_steps(tmp_path / "nano/run.jsonl", [hostile_group()]))
    logs.update()
    found = logs_in(logs.folder)["step-0001"]
    assert found.eval.viewer is not None and found.eval.viewer.trust_content is False
    whole = HOSTILE.replace("\ud800", "?")
    for sample in found.samples or []:
        assert whole in sample.input and whole in sample.target[0] and whole in sample.messages[-1].text
    long, raised = found.samples or []
    reply = events(long, "model")[1].output.completion
    assert reply.startswith(f"Reply {whole}") and "characters cut" in reply
    assert whole in (raised.output.error or "")


def test_evaluations_of_the_model_are_next_to_its_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "nano/run.jsonl", steps=1)
    logs = of(path)
    rollouts = [rollout for verdict in (True, False) for rollout in group("e", verdict).rollouts]
    for name in ("nano_heldout_0123abcd", "other_heldout_0123abcd"):
        logs.records.mkdir(exist_ok=True)
        with Ledger(logs.records / f"{name}.jsonl") as ledger:
            for index, rollout in enumerate(rollouts):
                ledger.add(index, 0, rollout)
    assert len(logs.update()) == 2 and not logs.update()
    found = logs_in(logs.folder)
    assert set(found) == {"step-0001", "evaluation-nano-heldout-0123abcd"}
    samples = found["evaluation-nano-heldout-0123abcd"].samples or []
    assert [sample.scores["correct"].value for sample in samples] == ["C", "I"]
    assert "class Workflow" in samples[0].messages[0].text
    assert [event.name for event in events(samples[0], "span_begin")] == ["policy", "workflow", "AnswerGenerate"]
    assert events(samples[0], "model")[1].output.completion == "Reply to math/e"


def test_the_command_writes_the_newest_runs_logs(here: Path, cli: CommandLine) -> None:
    write_run(Path("logs/nano/mine.jsonl"))
    assert "2 new Inspect logs in logs/nano/mine.inspect" in cli("view", "--write-only")
    assert "runs: nano/mine" in cli.refused("view", "absent", "--write-only")
    assert "0 new Inspect logs" in cli("view", "mine", "--write-only")
