"""Output of ``evaluate``."""

import io

from helpers.rollouts import problem, record_of, rollout
from msgspec.structs import replace
from rich.console import Console

from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.events import RolloutEvent
from llm_as_judge.llm.client import Usage
from llm_as_judge.types import Reference
from llm_as_judge.views.evaluation import evaluation_report, summary_tables

USAGE = {"executor": Usage(123456, 123456789, 12345678, 123.4567, 100, 3), "judge": Usage(10, 20000, 300, 1.5)}


def printed(width: int, **records: list[RolloutEvent]) -> str:
    console, rows = Console(file=io.StringIO(), width=width), {name: summarise(own) for name, own in records.items()}
    for part in [*summary_tables(list(rows.items())), *evaluation_report(rows, USAGE)]:
        console.print(part, highlight=False)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


KINDS = (Reference(("cat",)), Reference(unanswerable=True))
SQUAD = [
    record_of(i, 0, rollout(problem(str(i), "qa", "squad2", KINDS[i % 2]), bool(i % 3), answer="the cat"))
    for i in range(120)
]
CODE = [record_of(i, 0, rollout(problem(str(i), "code", "humaneval"), i > 9)) for i in range(20)]


def test_every_dataset_has_its_own_metric_and_no_figure_is_cut_off() -> None:
    for width in (80, 120):
        text = printed(width, commonsenseqa=SQUAD, humaneval=CODE)
        assert "\u2026" not in text and max(map(len, text.splitlines())) <= width
        shown = "commonsenseqa exact f1 NoAns_f1 pass@1 123,476,789 12,345,978 125".split()
        assert not [words for words in [*shown, "50.0 [30-70]"] if words not in text]
        (line,) = [line for line in text.splitlines() if "HasAns_exact" in line]
        assert line.split() == ["HasAns_exact", "100.0", "[94-100]", "60"]


def test_reasons_of_invalid_and_unscored_workflows_are_shown() -> None:
    of, records = problem("p", "math"), []
    for i, code in enumerate(["W201", "W201", "W303"]):
        record = record_of(i, 0, rollout(of, False, outcome="invalid"))
        records.append(replace(record, lint=["W205", code]))
    records += [record_of(3, 0, rollout(of, False, outcome="timeout")), record_of(4, 0, rollout(of, None))]
    text = printed(100, mine=records)
    assert "invalid, not run: 3\n      2  W201 there is no such operator\n      1  W303" in text
    assert "ended without an answer: 1\n      1  timeout" in text
    assert "unscored, infrastructure: 1\n      1  the provider was down" in text


def test_abstentions_give_a_range_and_an_alarm() -> None:
    """Every fourth answer is open: 30 of 120. 60 of the others are right."""
    text = printed(
        100, squad2=[replace(r, correct=None, abstained=True) if i % 4 == 0 else r for i, r in enumerate(SQUAD)]
    )
    assert "50.0 to 75.0, 30 left open" in text
    assert "ALARM: the judge left 25 % of the answers open, so that between 50 and 75 % are" in text
    assert "ALARM" not in printed(100, squad2=SQUAD)
