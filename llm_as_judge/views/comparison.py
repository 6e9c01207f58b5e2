"""The table of ``compare`` in Markdown: accuracies in percent, intervals in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_as_judge.evaluation.metrics import Estimate
from llm_as_judge.types import DOMAINS
from llm_as_judge.views.terminal import interval

if TYPE_CHECKING:  # imports torch
    from llm_as_judge.evaluation.comparison import Compared


def comparison_table(compared: Sequence[Compared]) -> str:
    """Markdown with aligned columns; domains without problems have no column."""
    domains = [d for d in DOMAINS if any(d in one.row.domains for one in compared)]
    policy = next(one.row.name for one in compared if one.difference is None)
    lines = [["percent right [95 %]", "overall", *domains, "tokens", "cost", "seconds", f"{policy} minus this, points"]]
    for one in compared:
        row, estimates = one.row, [one.row.overall, *(one.row.domains.get(d) for d in domains)]
        figures = [f"{row.tokens:.0f}", f"{row.cost:.3g}", f"{row.seconds:.2f}"]
        lines.append([row.name, *map(interval, estimates), *figures, _points(one.difference)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    head, *body = (_line(line, widths) for line in lines)
    return "\n".join([head, _line(rule, widths), *body])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join((first, *rest))} |"


def _points(difference: Estimate | None) -> str:
    if difference is None:
        return ""
    if not difference.n:
        return "-"
    value, low, high = (100 * v for v in (difference.value, difference.low, difference.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
