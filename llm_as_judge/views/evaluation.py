"""Output of ``evaluate``: official metrics by dataset, failures with reasons, usage of the models."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from llm_as_judge.views.terminal import ABSTENTION_ALARM, abstention_alarm, figure, interval, make_table, percent

if TYPE_CHECKING:  # these import torch
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.llm.client import Usage

#: Reasons shown of each kind, and characters of each.
_REASONS, _LONGEST = 5, 160
_COUNTS = ("calls", "cached", "failed", "prompt_tokens", "completion_tokens")


def summary_tables(rows: "Sequence[tuple[str, Summary]]") -> Iterator[RenderableType]:
    title = "Official metric, and percent right by it"
    table = make_table(title, "dataset", "metric", "[95 % interval]", "right", "problems")
    for name, row in rows:
        own = [name, _right(row)]
        for label, estimate in ((label, e) for one in row.official.values() for label, e in one.items()):
            shown, right = own or ("", "")
            table.add_row(shown, label, interval(estimate), right, str(estimate.n))
            own = []
    yield table
    title = "Workflows: executor tokens and seconds of each, cost of all"
    table = make_table(title, "dataset", "run", "valid", "tokens", "seconds", "cost")
    for name, row in rows:
        figures = (figure(row.tokens, ".0f"), figure(row.seconds, ".1f"), f"{row.cost:.4g}")
        table.add_row(name, str(sum(row.outcomes.values())), interval(row.valid_rate), *figures)
    yield table
    if any(row.first for _, row in rows):
        title = "First attempts, and the percent of workflows that were written again"
        table = make_table(title, "dataset", "right", "valid", "tokens", "written again")
        for name, row in rows:
            first = row.first or row
            shares = interval(first.overall), interval(first.valid_rate), figure(first.tokens, ".0f")
            table.add_row(name, *shares, percent(row.repaired))
        yield table


def _right(row: "Summary") -> str:
    """Accuracy with its interval; if the judge abstained, from all abstentions wrong to all right."""
    if row.between is None:
        return interval(row.overall)
    low, high = (100 * share for share in row.between)
    return f"{low:.1f} to {high:.1f}, {row.abstained} left open"


def troubles(rows: "Mapping[str, Summary]") -> Iterator[str]:
    """Workflows that did not run, ended early or could not be scored, with reasons; alarms for abstentions."""
    names = ("invalid, not run", "ended without an answer", "unscored, infrastructure")
    kinds = {name: Counter[str]() for name in names}
    for row in rows.values():
        ended = {name: n for name, n in row.outcomes.items() if name not in ("finished", "invalid", "fault")}
        for kind, reasons in zip(kinds.values(), (row.invalid, ended, row.unscored), strict=True):
            kind.update(reasons)
    for name, reasons in kinds.items():
        if reasons:
            yield f"{name}: {sum(reasons.values())}"
            for reason, count in reasons.most_common(_REASONS):
                yield f"  {count:5d}  {' '.join(reason.split())[:_LONGEST]}"
            if len(reasons) > _REASONS:
                yield f"         and {len(reasons) - _REASONS} more reasons"
    for name, row in rows.items():
        judged = row.overall.n + row.abstained
        if row.between and row.abstained > ABSTENTION_ALARM * judged:
            yield f"{name}: {abstention_alarm(row.abstained / judged, row.between)}"


def usage_table(usage: "Mapping[str, Usage]") -> Table:
    headings = ("calls", "cached", "failed", "prompt tokens", "reply tokens", "cost")
    table = make_table("Models asked", "", *headings)
    for role, own in {**{role: [u] for role, u in usage.items()}, "all": list(usage.values())}.items():
        counts = (f"{sum(getattr(u, name) for u in own):,}" for name in _COUNTS)
        if role != "all" or len(own) > 1:
            table.add_row(role.replace("_", " "), *counts, f"{sum(u.cost for u in own):.4g}")
    return table
