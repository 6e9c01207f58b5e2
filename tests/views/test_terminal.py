"""Terminal output of a run."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from llm_as_judge.evaluation.metrics import Estimate
from llm_as_judge.events import StepReport
from llm_as_judge.types import Domain
from llm_as_judge.views.terminal import TerminalProgress, plans_table, result_table, shapes_table, step_line

REPORT = StepReport(
    step=7, reward_mean=4.256, accuracy=0.5, valid_rate=0.875, domain_accuracy={"math": 0.25, "qa": 1.0},
    executor_tokens=312.4, kl=0.0123, entropy=0.4, seconds={"generate": 1.5, "update": 0.75},
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    overall: Estimate
    domains: Mapping[Domain, Estimate]
    valid_rate: Estimate | None
    tokens: float


def shown(table: Table, width: int = 160) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def row(lines: list[str], name: str) -> list[str]:
    (line,) = [li for li in lines if name in li]
    return re.split(r"\s{2,}", line.strip())


def test_a_step_is_one_line_of_rounded_numbers() -> None:
    start = "step  7/90  reward  4.26  right  50% (math  25 code   - qa 100)  valid  88%  tokens 312  "
    assert step_line(REPORT, 90) == f"{start}kl 0.012  entropy 0.400  2.2 s"
    assert step_line(replace(REPORT, unscored=3, kl=math.nan), 90) == f"{start}entropy 0.400  2.2 s unscored 3"


def test_a_file_gets_a_line_a_minute_for_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr("llm_as_judge.views.terminal.monotonic", lambda: float(next(clock)))
    console = Console(file=io.StringIO(), width=100)
    with TerminalProgress(console) as progress:
        for done in range(1, 11):
            progress.advance("warm-up", done, 10)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line for line in lines if line] == [f"warm-up: {n} of 10, about {m} min left" for n, m in ((4, 2), (7, 1))]


def test_abstentions_of_the_judge_give_a_range_and_an_alarm() -> None:
    """Right 79 % of what was scored, 55 % of all answers for certain."""
    open_ = replace(REPORT, accuracy=0.79, abstained=0.3, unscored=19)
    assert "right 55-85%, 30% left open by the judge (math" in step_line(open_, 90)
    for report, alarm in ((open_, True), (replace(open_, abstained=0.05), False)):
        console = Console(file=io.StringIO(), width=100)
        TerminalProgress(console).step(report, 90)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("ALARM: the judge left 30 % of the answers open" in text) is alarm


def test_the_result_table_shows_percent_with_intervals() -> None:
    half, open_ = Estimate(0.5, 0.402, 0.598, 100), Estimate(math.nan, 0, 1, 0)
    lines = shown(
        result_table(
            {
                "trained policy": Line(half, {"math": Estimate(1.0, 0.51, 1.0, 4), "qa": open_}, half, 123.4),
                "random policy": Line(open_, {}, None, 60),
            },
            100,
        )
    )
    assert "Percent right on 100 held-out problems" in lines[0]
    assert row(lines, "trained") == [
        "trained policy", "50.0 [40-60]", "100.0 [51-100]", "-", "-", "50.0 [40-60]", "123",
    ]  # fmt: skip
    assert row(lines, "random") == ["random policy", "-", "-", "-", "-", "-", "60"]


def test_the_plans_table_marks_learned_plans() -> None:
    accuracies = {"direct": {"math": 0.2, "code": 0.0}, "program": {"math": 0.9, "code": 0.0}}
    lines = shown(plans_table(accuracies, {"math": "program"}))
    assert row(lines, "program") == ["program", "90*", "0", "-"]
    assert row(lines, "direct") == ["direct", "20", "0", "-"]


def test_the_shapes_table_shows_the_three_most_frequent() -> None:
    after = {"math": {"A": 1, "B": 6, "C": 2, "D": 1}}
    lines = shown(shapes_table({"math": {"invalid": 1, "A": 3}}, after))
    text = "\n".join(lines)
    assert "75 % A" in text and "25 % invalid" in text
    assert text.index("60 % B") < text.index("20 % C") < text.index("10 % A") and " D" not in text


def test_progress_shows_bars_for_running_and_lines_for_finished_work() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with TerminalProgress(console) as progress:
        progress.say("here we go")
        progress.step(REPORT, 90)
        progress.advance("problems", 3, 8)
        progress._bar.refresh()
        progress.advance("problems", 8, 8)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "here we go" in text and "step  7/90" in text
    assert "training" in text and "7/90" in text and "problems" in text and "3/8" in text and "left" in text
