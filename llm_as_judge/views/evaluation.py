"""Output of ``evaluate``: official metrics by dataset, failures with reasons, usage of the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from llm_as_judge.views.terminal import ABSTENTION_ALARM, abstention_alarm, interval
from llm_as_judge.views.watch import figure

if TYPE_CHECKING:  # these import torch
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.llm.client import Usage

#: Reasons shown of each kind, and characters of each.
_REASONS, _LONGEST = 5, 160


def evaluation_report(rows: Mapping[str, Summary], usage: Mapping[str, Usage]) -> Iterator[RenderableType]:
    """Troubles of one evaluated file and usage of the models; the figures are in ``summary_tables``."""
    yield from map(Text, troubles(rows))
    for name, row in rows.items():
        judged = row.overall.n + row.abstained
        if row.between and row.abstained > ABSTENTION_ALARM * judged:
            yield Text(f"{name}: {abstention_alarm(row.abstained / judged, row.between)}")
    yield usage_table(usage)


def summary_tables(rows: Sequence[tuple[str, Summary]]) -> Iterator[RenderableType]:
    """All datasets with their official metrics, validity and costs."""
    table = Table(title="Official metric, and percent right by tests and rules", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", overflow="fold")
    table.add_column("metric", no_wrap=True)
    for heading in ("[95 % interval]", "right", "problems"):
        table.add_column(Text(heading), justify="right")
    for name, row in rows:
        own = [name, _right(row)]
        for label, estimate in ((label, e) for one in row.official.values() for label, e in one.values.items()):
            shown, right = own or ("", "")
            table.add_row(shown, label, interval(estimate), right, str(estimate.n))
            own = []
    yield table
    table = Table(title="Workflows: executor tokens and seconds of each, cost of all", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", overflow="fold")
    for heading in ("run", "valid", "tokens", "seconds", "cost"):
        table.add_column(heading, justify="right")
    for name, row in rows:
        figures = (figure(row.tokens, ".0f"), figure(row.seconds, ".1f"), f"{row.cost:.4g}")
        table.add_row(name, str(sum(row.outcomes.values())), interval(row.valid_rate), *figures)
    yield table


def _right(row: Summary) -> str:
    """Accuracy with its interval; if the judge abstained, from all abstentions wrong to all right."""
    if row.between is None:
        return interval(row.overall)
    low, high = (100 * share for share in row.between)
    return f"{low:.1f} to {high:.1f}, {row.abstained} left open"


def troubles(rows: Mapping[str, Summary]) -> Iterator[str]:
    """Workflows that did not run, ended early or could not be scored, with the most frequent reasons."""
    kinds = {
        "invalid, not run": _added(row.invalid for row in rows.values()),
        "ended without an answer": _added(
            {o: n for o, n in row.outcomes.items() if o not in ("finished", "invalid", "fault")}
            for row in rows.values()
        ),
        "unscored, infrastructure": _added(row.unscored for row in rows.values()),
    }
    for kind, reasons in kinds.items():
        if reasons:
            yield f"{kind}: {sum(reasons.values())}"
            for reason, count in reasons.most_common(_REASONS):
                yield f"  {count:5d}  {' '.join(reason.split())[:_LONGEST]}"
            if len(reasons) > _REASONS:
                yield f"         and {len(reasons) - _REASONS} more reasons"


def usage_table(usage: Mapping[str, Usage]) -> Table:
    """Requests, tokens and cost of each model."""
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
