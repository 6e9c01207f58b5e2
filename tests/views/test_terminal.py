"""Terminal output of a run and of an evaluation, and the learning curve."""

import dataclasses
import io
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.rollouts import alone, problem, rollout
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from llm_as_judge.evaluation.intervals import Estimate
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.events import EvalEvent, StepReport
from llm_as_judge.llm.client import Usage
from llm_as_judge.types import Execution, Finding, Reference, Rollout, Verdict
from llm_as_judge.views import terminal as views
from llm_as_judge.views.charts import learning_curve

REPORT = StepReport(
    step=7, reward_mean=4.256, accuracy=0.5, valid_rate=0.875, domain_accuracy={"math": 0.25, "qa": 1.0},
    executor_tokens=312.4, kl=0.0123, entropy=0.4, seconds={"generate": 1.5, "update": 0.75},
)  # fmt: skip


def shown(table: Table) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def row(text: str, name: str) -> list[str]:
    (line,) = [li for li in text.splitlines() if name in li]
    return re.split(r"\s{2,}", line.strip())


def test_a_step_is_one_line_and_abstentions_give_a_range_and_an_alarm() -> None:
    start = "step  7/90  reward  4.26  right  50% (math  25 qa 100)  valid  88%  tokens 312  "
    assert views.step_line(REPORT, 90) == f"{start}kl 0.012  entropy 0.400  2.2 s"
    assert views.step_line(replace(REPORT, unscored=3, kl=math.nan), 90) == f"{start}entropy 0.400  2.2 s unscored 3"
    # Right 79 % of what was scored, 55 % of all answers for certain.
    open_ = replace(REPORT, accuracy=0.79, abstained=0.3, unscored=19)
    assert "right 55-85%, 30% left open by the judge (math" in views.step_line(open_, 90)
    for report, alarm in ((open_, True), (replace(open_, abstained=0.05), False)):
        console = Console(file=io.StringIO(), width=100)
        views.TerminalProgress(console).step(report, 90)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("ALARM: the judge left 30 % of the answers open" in text) is alarm


def test_progress_shows_bars_and_in_a_file_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr("llm_as_judge.views.terminal.monotonic", lambda: float(next(clock)))
    for terminal in (False, True):
        console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
        with views.TerminalProgress(console) as progress:
            progress.step(REPORT, 90)
            for done in range(1, 11):
                progress.advance("warm-up", done, 10)
                progress._bar.refresh()
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "step  7/90" in text and ("7/90" in text and "3/10" in text) is terminal
        lines = [line for line in text.splitlines() if line.startswith("warm-up:")]
        assert terminal or lines == [f"warm-up: {n} of 10, about {m} min left" for n, m in ((4, 2), (7, 1))]


def test_the_tables_show_percent_with_intervals_learned_and_frequent_shapes() -> None:
    half, open_ = Estimate(0.5, 0.402, 0.598, 100), Estimate(math.nan, 0, 1, 0)
    domains = {"math": Estimate(1.0, 0.51, 1.0, 4), "qa": open_}
    trained = SimpleNamespace(overall=half, score=None, domains=domains, valid_rate=half, tokens=123.4)
    drawn = SimpleNamespace(overall=open_, score=None, domains={}, tokens=60)
    text = shown(views.result_table({"trained policy": trained, "random policy": drawn}, 100))  # type: ignore[dict-item]
    assert "Percent right on 100 held-out problems" in text
    cells = ["trained policy", "50.0 [40-60]", "100.0 [51-100]", "-", "50.0 [40-60]", "123"]
    assert row(text, "trained") == cells and row(text, "random") == ["random policy", *"----", "60"]
    scored = SimpleNamespace(**{**vars(trained), "score": half, "overall": Estimate(0.5, 0.402, 0.598, 100, 3)})
    text = shown(views.result_table({"trained policy": scored, "random policy": drawn}, 100))  # type: ignore[dict-item]
    assert row(text, "trained") == [*cells, "50.0 [40-60]", "3"] and row(text, "random")[-2:] == ["-", "0"]
    shapes = shown(views.single_shapes_table({"program": {"math": 0.9, "code": 0.0}}, {"math": "program"}))
    assert row(shapes, "program") == ["program", "90*", "0"]
    text = shown(views.shapes_table({"math": {"invalid": 1, "A": 3}}, {"math": {"A": 1, "B": 6, "C": 2, "D": 1}}))
    assert "75 % A" in text and "25 % invalid" in text
    assert text.index("60 % B") < text.index("20 % C") < text.index("10 % A") and " D" not in text


def test_the_curve_draws_training_held_out_accuracy_bounds_validations_and_abstentions(tmp_path: Path) -> None:
    made = [replace(REPORT, step=step, accuracy=step / 5) for step in (1, 2)]
    found, file, pictures = Estimate(0.6, 0.5, 0.7, 50), tmp_path / "new/curve.png", set()
    for steps, after, evals, bounds in (
        (made, found, [], {}),
        (made, found, [], {"per-domain oracle": 0.5}),
        (made, Estimate(0.6, 0.5, 0.9, 50), [], {}),
        (made, found, [EvalEvent(step=2, scores={"overall": 0.7})], {}),
        ([replace(step, abstained=0.3) for step in made], found, [], {}),
        ([], Estimate(math.nan, math.nan, math.nan, 0), [], {}),
    ):
        learning_curve(steps, file, Estimate(0.2, 0.1, 0.3, 50), after, evals, bounds)
        pictures.add(file.read_bytes())
    assert len(pictures) == 6 and all(picture.startswith(b"\x89PNG") for picture in pictures)


def printed(width: int, **made: list[Rollout]) -> str:
    usage = {"executor": Usage(123456, 123456789, 12345678, 123.4567, 100, 3), "judge": Usage(10, 20000, 300, 1.5)}
    console, rows = (
        Console(file=io.StringIO(), width=width),
        {name: summarise(alone(r)) for name, r in made.items()},
    )
    for part in [*views.summary_tables(list(rows.items())), *views.troubles(rows), views.usage_table(usage)]:
        console.print(part, highlight=False)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


KINDS = (Reference(("cat",)), Reference(unanswerable=True))
SQUAD = [rollout(problem(str(i), "qa", "squad2", KINDS[i % 2]), bool(i % 3), answer="the cat") for i in range(120)]
CODE = [rollout(problem(str(i), "code", "humaneval"), i > 9) for i in range(20)]


def test_every_dataset_has_its_metric_and_abstentions_give_an_alarm() -> None:
    for width in (80, 120):
        text = printed(width, commonsenseqa=SQUAD, humaneval=CODE)
        assert "\u2026" not in text and max(map(len, text.splitlines())) <= width
        shown = "commonsenseqa exact f1 NoAns_f1 pass@1 123,476,789 12,345,978 125".split()
        assert not [words for words in [*shown, "50.0 [30-70]"] if words not in text]
        (line,) = [line for line in text.splitlines() if "HasAns_exact" in line]
        assert line.split() == ["HasAns_exact", "100.0", "[94-100]", "60"]
    # Every fourth answer is open: 30 of 120. 60 of the others are right.
    some = [dataclasses.replace(r, verdict=Verdict(None, "llm")) if i % 4 == 0 else r for i, r in enumerate(SQUAD)]
    text, own = printed(100, squad2=some), Verdict(None, "function")
    assert "raise judge.max_tokens" in text
    failed = " ".join(printed(100, squad2=[dataclasses.replace(r, verdict=own) for r in SQUAD]).split())
    assert "judge.function gave None, failed or took too long" in failed and "judge.max_tokens" not in failed
    assert "50.0 to 75.0, 30 left open" in text
    assert "ALARM: the judge left 25 % of the answers open, so that between 50 and 75 % are" in text
    assert "ALARM" not in printed(100, squad2=SQUAD)


def test_reasons_of_invalid_and_unscored_workflows_are_shown() -> None:
    of, made = problem("p", "math"), []
    for code in ("W201", "W201", "W303"):
        findings = tuple(Finding(one, "", 1, one == code) for one in ("W205", code))
        made.append(dataclasses.replace(rollout(of, False), execution=Execution("invalid", None, findings=findings)))
    text = printed(100, mine=[*made, rollout(of, False, outcome="timeout"), rollout(of, None)])
    assert "invalid, not run: 3\n      2  W201 there is no such operator\n      1  W303" in text
    assert "ended without an answer: 1\n      1  timeout" in text
    assert "unscored: 1\n      1  the provider was down" in text
