"""``analyze``: every figure against the same computed by hand."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.run_logs import write

from llm_as_judge.commands.app import main
from llm_as_judge.evaluation.analysis import DIMENSIONS, Analysis, analyze_log
from llm_as_judge.events import Event, RolloutEvent, RunEvent, StepReport


def ran(**more: Any) -> RolloutEvent:
    fields: Mapping[str, Any] = {
        "step": 1, "problem": "p", "domain": "math", "dataset": "gsm8k", "text": "", "outcome": "finished",
        "operators": ["Custom"], "executor_tokens": 100, "cost": 0.5, "correct": True, "reward": 8.0, "shape": "Custom",
    }  # fmt: skip
    return RolloutEvent(**{**fields, **more})


def report(step: int) -> StepReport:
    return StepReport(
        step=step, groups=4, skipped_groups=1, kl=0.5, entropy=1.0, seconds={"generate": 2.0, "update": 3.0}
    )


def logged(path: Path, *events: Event) -> Analysis:
    return analyze_log(write(path, *events))


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    found = logged(
        tmp_path / "run.jsonl",
        ran(),
        ran(correct=False, reward=-2.0, executor_tokens=300, domain="qa", dataset="", shape=""),
        ran(outcome="invalid", correct=False, reward=-5.0, lint=["W205", "W204"], operators=[], cost=0.0),
        ran(outcome="raised", correct=False, reward=-5.0, error="ValueError: 12 is odd\nmore"),
        ran(outcome="fault", correct=None, reward=None, error="ProviderError: http://x 503"),
        ran(correct=None, reward=None, reason="no verdict in 512 tokens", operators=["Custom", "Test"]),
        report(1),
    )
    total = found.total
    assert (total.rollouts, total.unscored, total.executor_tokens, total.cost) == (6, 2, 800 / 6, 2.5)
    assert (total.accuracy, total.valid_rate, total.reward) == (1 / 4, 3 / 5, -4.0 / 4)
    counts = {dimension: {key: line.rollouts for key, line in lines.items()} for dimension, lines in found.by.items()}
    failures = counts.pop("failure")
    assert counts == {
        "domain": {"math": 5, "qa": 1}, "dataset": {"gsm8k": 5, "none": 1}, "operator": {"Custom": 5, "Test": 1},
        "shape": {"Custom": 5, "no operator": 1}, "lint": {"W204": 1, "W205": 1},
    }  # fmt: skip
    assert {key.partition(" ")[0]: n for key, n in failures.items() if key.startswith("invalid")} == {"invalid:": 1}
    assert {key: n for key, n in failures.items() if not key.startswith("invalid")} == {
        "wrong answer": 1, "raised: ValueError": 1, "unscored: ProviderError": 1, "unscored: no verdict in N tokens": 1,
    }  # fmt: skip
    (part,) = found.time
    assert (part.first, part.last, part.zero_variance, part.kl, part.seconds) == (1, 1, 0.25, 0.5, 5.0)


def test_a_step_done_again_counts_once_and_a_new_run_starts_again(tmp_path: Path) -> None:
    steps = [ran(step=n, reward=float(n)) for n in (1, 2, 3)]
    again = RunEvent(resumed_from="checkpoints/nano/run/step_2")
    found = logged(tmp_path / "a.jsonl", RunEvent(), *steps, again, ran(step=3, reward=30.0))
    assert found.total.rollouts == 3 and found.total.reward == (1 + 2 + 30) / 3
    assert logged(tmp_path / "b.jsonl", *steps, RunEvent(), steps[0]).total.rollouts == 1


def test_time_is_cut_into_at_most_ten_parts(tmp_path: Path) -> None:
    events = [event for n in range(1, 24) for event in (ran(step=n, reward=float(n)), report(n))]
    found = logged(tmp_path / "a.jsonl", *events)
    assert [(part.first, part.last) for part in found.time] == [(a, min(a + 2, 23)) for a in range(1, 24, 3)]
    assert found.time[0].line.reward == 2.0


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for model, name in (("nano", "grpo_mixed"), ("nano", "other"), ("qwen", "other")):
        Path("logs", model).mkdir(parents=True, exist_ok=True)
        logged(Path("logs", model, f"{name}.jsonl"), ran(dataset=f"{model}-{name}"))
    return tmp_path


def test_a_run_is_found_by_name_or_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for words, dataset in (
        ([], "nano-grpo_mixed"), (["grpo_mixed"], "nano-grpo_mixed"), (["qwen/other"], "qwen-other"),
        (["logs/nano/other.jsonl"], "nano-other"),
    ):  # fmt: skip
        status = main(["analyze", *words, "--json"])
        if status or set(json.loads(capsys.readouterr().out)["by"]["dataset"]) != {dataset}:
            wrong.append(words)
    Path("results.json").write_text('{\n"a": 1\n}\n')
    os.truncate("logs/qwen/other.jsonl", 0)
    for word, reason in (
        ("other", "several models"), ("none", "nano/grpo_mixed"), ("../secret", "no such log and no such run"),
        ("results.json", "results.json is not the log of a run"), ("qwen/other", "no rollouts yet"),
    ):  # fmt: skip
        status = main(["analyze", word])
        if status != 2 or reason not in (told := capsys.readouterr().err):
            wrong.append((word, status, told))
    assert not wrong


def test_every_dimension_has_its_table_and_hostile_names_are_text(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = ran(dataset="[red]x[/red]", shape="[/]", error="\x1b[31mboo", outcome="raised", correct=False)
    logged(Path("logs/nano/all.jsonl"), hostile, ran(lint=["W301"], correct=False), report(1))
    assert main(["analyze", "all"]) == 0
    printed = capsys.readouterr().out
    assert not [dimension for dimension in DIMENSIONS if f"by {dimension}" not in printed]
    assert "over time" in printed and "[red]x[/red]" in printed and "[/]" in printed and "\x1b" not in printed
