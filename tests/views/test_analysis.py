"""``analyze``: every figure against the same computed by hand, and its speed on a long log."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.rollouts import problem, rollout

from llm_as_judge.commands.app import main
from llm_as_judge.evaluation.analysis import DIMENSIONS, Analysis, analyze_log
from llm_as_judge.rl.credit import credit
from llm_as_judge.rl.report import log_step, step_report
from llm_as_judge.rl.update import UpdateReport
from llm_as_judge.runlog import EventLog
from llm_as_judge.types import Group
from llm_as_judge.workflow.shapes import SHAPES, workflow
from llm_as_judge.workflow.structure import shape


def told(**more: Any) -> dict[str, Any]:
    event = {
        "step": 1, "problem": "p", "domain": "math", "dataset": "gsm8k", "text": "", "lint": [], "outcome": "finished",
        "error": "", "operators": ["Custom"], "executor_tokens": 100, "cost": 0.5, "correct": True, "reason": "",
        "reward": 8.0, "shape": "Custom",
    }  # fmt: skip
    return {**event, **more}


STEP = {
    "groups": 4, "skipped_groups": 1, "kl": 0.5, "entropy": 1.0, "seconds": {"generate": 2.0, "update": 3.0},
}  # fmt: skip


def logged(path: Path, *events: tuple[str, dict[str, Any]]) -> Analysis:
    with EventLog(path) as log:
        for kind, fields in events:
            log.log(kind, **fields)
    return analyze_log(path)


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    found = logged(
        tmp_path / "run.jsonl",
        ("rollout", told()),
        ("rollout", told(correct=False, reward=-2.0, executor_tokens=300, domain="qa", dataset="", shape="")),
        ("rollout", told(outcome="invalid", correct=False, reward=-5.0, lint=["W205", "W204"], operators=[], cost=0.0)),
        ("rollout", told(outcome="raised", correct=False, reward=-5.0, error="ValueError: 12 is odd\nmore")),
        ("rollout", told(outcome="fault", correct=None, reward=None, error="ProviderError: http://x 503")),
        ("rollout", told(correct=None, reward=None, reason="no verdict in 512 tokens", operators=["Custom", "Test"])),
        ("step", {**STEP, "step": 1}),
    )
    total = found.total
    assert (total.rollouts, total.unscored, total.executor_tokens, total.cost) == (6, 2, 800 / 6, 2.5)
    assert (total.accuracy, total.valid_rate, total.reward) == (1 / 4, 3 / 5, -4.0 / 4)
    assert {k: line.rollouts for k, line in found.by["domain"].items()} == {"math": 5, "qa": 1}
    assert {k: line.rollouts for k, line in found.by["dataset"].items()} == {"gsm8k": 5, "none": 1}
    assert {k: line.rollouts for k, line in found.by["operator"].items()} == {"Custom": 5, "Test": 1}
    assert {k: line.rollouts for k, line in found.by["shape"].items()} == {"Custom": 5, "no operator": 1}
    assert {k: line.rollouts for k, line in found.by["lint"].items()} == {"W204": 1, "W205": 1}
    assert {k: line.rollouts for k, line in found.by["failure"].items()} == {
        "wrong answer": 1, "invalid: W204 an operator's call is not awaited": 1, "raised: ValueError": 1,
        "unscored: ProviderError": 1, "unscored: no verdict in N tokens": 1,
    }  # fmt: skip
    (part,) = found.time
    assert (part.first, part.last, part.zero_variance, part.kl, part.seconds) == (1, 1, 0.25, 0.5, 5.0)


def test_a_step_done_again_counts_once_and_a_new_run_starts_anew(tmp_path: Path) -> None:
    steps = [("rollout", told(step=n, reward=float(n))) for n in (1, 2, 3)]
    again = ("run", {"resumed_from": "checkpoints/nano/run/step_2"})
    found = logged(tmp_path / "a.jsonl", ("run", {}), *steps, again, ("rollout", told(step=3, reward=30.0)))
    assert found.total.rollouts == 3 and found.total.reward == (1 + 2 + 30) / 3
    found = logged(tmp_path / "b.jsonl", *steps, ("run", {"resumed_from": None}), steps[0])
    assert found.total.rollouts == 1


def test_time_is_cut_into_at_most_ten_parts(tmp_path: Path) -> None:
    events = [event for n in range(1, 24) for event in
              (("rollout", told(step=n, reward=float(n))), ("step", {**STEP, "step": n}))]  # fmt: skip
    found = logged(tmp_path / "a.jsonl", *events)
    assert [(part.first, part.last) for part in found.time] == [(a, min(a + 2, 23)) for a in range(1, 24, 3)]
    assert found.time[0].line.reward == 2.0


def test_the_log_of_the_trainer_is_what_is_read(tmp_path: Path) -> None:
    """The trainer's own writer, and the shape of the text where a log does not tell it."""
    of = problem("p1", "math", "gsm8k")
    plans = ("answer", "vote")
    group = Group(of, (rollout(of, True, plan="answer", tokens=40), rollout(of, False, plan="vote", tokens=60)))
    credited = credit([group], "none", None)
    update = UpdateReport(*[0.0] * len(UpdateReport.__dataclass_fields__))
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        log_step(log.log, credited, step_report(1, credited, update, learning_rate=1e-3, seconds={"update": 1.0}))
    found = analyze_log(path)
    assert found.total.rollouts == 2 and found.total.accuracy == 0.5 and found.total.executor_tokens == 50
    shapes = {shape(workflow(SHAPES[plan], "math")) for plan in plans}
    assert set(found.by["shape"]) == shapes
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("shape", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert set(analyze_log(path).by["shape"]) == shapes


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    logged(path, ("rollout", told()))
    with open(path, "ab") as file:
        file.write(b'{"time": 1, "kind": "rollout", "step": 1, "dom\n\xff\xfe\n[1]\n{"time": 1, "kind": "rollout"}\n')
        file.write(b'{"time": 1, "kind": "rollout", "step": 2')
    assert analyze_log(path).total.rollouts == 1


def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = (  # the peak that resource tells may be that of the process it was forked from
        "import re, resource, sys; from llm_as_judge.commands.app import main\n"
        f"status = main({['analyze', str(path), *words]!r})\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "print(used.ru_utime + used.ru_stime, peak / 1024, file=sys.stderr)\n"
        "sys.exit('torch' in sys.modules or status)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=path.parent)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hundred_thousand_rollouts_take_under_ten_seconds_and_300_megabytes(tmp_path: Path) -> None:
    """Of two kilobytes each, every text another one."""
    draw, path = random.Random(0), tmp_path / "long.jsonl"
    texts = [json.dumps(workflow(plan, "math") + "#" * 700)[1:-1] for plan in SHAPES.values()]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(100_000):
            correct, reason = draw.random() < 0.5, "because " * 40
            file.write(
                f'{{"time": 1.5, "kind": "rollout", "step": {1 + i // 64}, "problem": "p{i}", "domain": "math", '
                f'"dataset": "gsm8k", "text": "{texts[i % len(texts)]}{i}", "outcome": "finished", "error": "", '
                f'"answer": "{i}", "operators": ["Custom", "Review"], "executor_tokens": {i % 1000}, "cost": 0.01, '
                f'"correct": {str(correct).lower()}, "reason": "{reason}", "reward": {draw.random()}, "lint": [], '
                f'"terms": {{"correctness": 5.0, "efficiency": 1.0}}, "advantage": 0.5, "shape": "s{i % 300}"}}\n'
            )
    assert path.stat().st_size > 150e6
    done = run(path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total"]["rollouts"] == 100_000
    seconds, megabytes = map(float, done.stderr.split()[-2:])
    assert seconds < 10 and megabytes < 300, (seconds, megabytes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for model, name in (("nano", "grpo_mixed"), ("nano", "other"), ("qwen", "other")):
        Path("logs", model).mkdir(parents=True, exist_ok=True)
        logged(Path("logs", model, f"{name}.jsonl"), ("rollout", told(dataset=f"{model}-{name}")))
    return tmp_path


def test_a_run_is_found_by_name_or_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, dataset in (
        ([], "nano-grpo_mixed"), (["grpo_mixed"], "nano-grpo_mixed"), (["qwen/other"], "qwen-other"),
        (["logs/nano/other.jsonl"], "nano-other"),
    ):  # fmt: skip
        assert main(["analyze", *words, "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["by"]["dataset"]) == {dataset}
    for word, reason in (("other", "several models"), ("none", "nano/grpo_mixed"), ("../secret", "no log and no run")):
        assert main(["analyze", word]) == 2
        assert reason in capsys.readouterr().err
    os.truncate("logs/nano/other.jsonl", 0)
    assert main(["analyze", "nano/other"]) == 2
    assert "no rollout yet" in capsys.readouterr().err


def test_hostile_names_are_shown_as_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"dataset": "[red]x[/red]", "shape": "[/]", "error": "\x1b[31mboo", "outcome": "raised", "correct": False}
    logged(Path("logs/nano/hostile.jsonl"), ("rollout", told(**names)))
    assert main(["analyze", "hostile"]) == 0
    printed = capsys.readouterr().out
    assert "[red]x[/red]" in printed and "[/]" in printed and "\x1b" not in printed


def test_every_dimension_has_its_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged(Path("logs/nano/all.jsonl"), ("rollout", told(lint=["W301"], correct=False)), ("step", {**STEP, "step": 1}))
    assert main(["analyze", "all"]) == 0
    printed = capsys.readouterr().out
    assert not [dimension for dimension in DIMENSIONS if f"by {dimension}" not in printed]
    assert "over time" in printed and "a variable may be unbound" in printed
