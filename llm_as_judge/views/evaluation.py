"""What ``evaluate`` prints: a row a dataset with its official metric, what went wrong, what the models were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from llm_as_judge.views.terminal import ABSTENTION_ALARM, abstention_alarm, interval

if TYPE_CHECKING:  # these are torch's neighbours
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.llm.client import Usage

#: Reasons of a kind that are named, and how much of each.
_REASONS, _LONGEST = 5, 160


def evaluation_report(rows: Mapping[str, Summary], usage: Mapping[str, Usage]) -> Iterator[RenderableType]:
    yield _official_table(rows)
    yield _cost_table(rows)
    yield from map(Text, troubles(rows))
    for name, row in rows.items():
        judged = row.overall.n + row.abstained
        if row.between and row.abstained > ABSTENTION_ALARM * judged:
            yield Text(f"{name}: {abstention_alarm(row.abstained / judged, row.between)}")
    yield usage_table(usage)


def _official_table(rows: Mapping[str, Summary]) -> Table:
    table = Table(title="Official metric, and percent right by tests and rules", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", overflow="fold")
    table.add_column("metric", no_wrap=True)
    for heading in ("[95 % interval]", "right", "problems"):
        table.add_column(Text(heading), justify="right")
    for name, row in rows.items():
        own = [name, _right(row)]
        for label, estimate in ((label, e) for one in row.official.values() for label, e in one.values.items()):
            shown, right = own or ("", "")
            table.add_row(shown, label, interval(estimate), right, str(estimate.n))
            own = []
    return table


def _cost_table(rows: Mapping[str, Summary]) -> Table:
    table = Table(title="Workflows: executor tokens and seconds of each, cost of all", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", overflow="fold")
    for heading in ("run", "valid", "tokens", "seconds", "cost"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        figures = (_figure(row.tokens, ".0f"), _figure(row.seconds, ".1f"), f"{row.cost:.4g}")
        table.add_row(name, str(sum(row.outcomes.values())), interval(row.valid_rate), *figures)
    return table


def _right(row: Summary) -> str:
    """With its interval; where the judge abstained, from all of that wrong to all of it right."""
    if row.between is None:
        return interval(row.overall)
    low, high = (100 * share for share in row.between)
    return f"{low:.1f} to {high:.1f}, {row.abstained} left open"


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
