"""What ``evaluate`` prints: a row a dataset with its official metric, what went wrong, what the models were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from llm_as_judge.views.terminal import interval

if TYPE_CHECKING:  # these are torch's neighbours
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.llm import Usage

#: Reasons of a kind that are named, and how much of each.
_REASONS, _LONGEST = 5, 160


def evaluation_report(rows: Mapping[str, Summary], usage: Mapping[str, Usage]) -> Iterator[RenderableType]:
    yield _official_table(rows)
    yield from map(Text, troubles(rows))
    yield usage_table(usage)


def _official_table(rows: Mapping[str, Summary]) -> Table:
    title = (
        "Official metric, and percent right by tests and rules [95 % interval];\n"
        "executor tokens and seconds per workflow, cost of all"
    )
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("dataset", "official metric"):
        table.add_column(heading, overflow="fold")
    for heading in ("right", "valid", "problems", "tokens", "cost", "s"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        values = [(label, e) for one in row.official.values() for label, e in one.values.items()]
        table.add_row(
            name,
            "\n".join(f"{label} {interval(e)}" for label, e in values),
            interval(row.overall),
            interval(row.valid_rate),
            str(row.overall.n),
            _figure(row.tokens, ".0f"),
            f"{row.cost:.4g}",
            _figure(row.seconds, ".1f"),
        )
    return table


def troubles(rows: Mapping[str, Summary]) -> Iterator[str]:
    """Lines on what did not run, ended early or could not be scored, and why."""
    kinds = {
        "invalid, not run": _added(row.invalid for row in rows.values()),
        "ended without an answer": _added(
            {o: n for o, n in row.outcomes.items() if o not in ("finished", "invalid", "fault")}
            for row in rows.values()
        ),
        "unscored, our fault": _added(row.unscored for row in rows.values()),
    }
    for kind, reasons in kinds.items():
        if reasons:
            yield f"{kind}: {sum(reasons.values())}"
            for reason, count in reasons.most_common(_REASONS):
                yield f"  {count:5d}  {' '.join(reason.split())[:_LONGEST]}"
            if len(reasons) > _REASONS:
                yield f"         and {len(reasons) - _REASONS} more reasons"


def usage_table(usage: Mapping[str, Usage]) -> Table:
    """What each model was asked, and the cost of it all."""
    table = Table(title="Models asked", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for heading in ("calls", "cached", "failed", "prompt tokens", "reply tokens", "cost"):
        table.add_column(heading, justify="right")
    for role, u in usage.items():
        counts = (u.calls, u.cached, u.failed, u.prompt_tokens, u.completion_tokens)
        table.add_row(role.replace("_", " "), *(f"{n:,}" for n in counts), f"{u.cost:.4g}")
    if len(usage) > 1:
        every = [sum(getattr(u, name) for u in usage.values()) for name in _COUNTS]
        table.add_row("all", *(f"{n:,}" for n in every), f"{sum(u.cost for u in usage.values()):.4g}", style="bold")
    return table


_COUNTS = ("calls", "cached", "failed", "prompt_tokens", "completion_tokens")


def _added(counts: Iterator[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


def _figure(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)  # NaN is no number, not even itself
