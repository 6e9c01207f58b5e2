"""What ``analyze`` and ``monitor`` show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from llm_as_judge.evaluation.analysis import Analysis, Line
from llm_as_judge.evaluation.watching import RECENT, Look
from llm_as_judge.workflow.lint.codes import CODES

_ROWS = 12  # of a table
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # steps in the small curve


def analysis_tables(analysis: Analysis) -> Iterator[RenderableType]:
    """A table for each dimension, and one over time."""
    total = analysis.total
    yield Text(f"{analysis.log}: {total.rollouts:,} rollouts, cost {total.cost:.4g}")
    for dimension, lines in analysis.by.items():
        if lines:
            yield _table(dimension, lines, total)
    table = Table(title="over time", box=SIMPLE_HEAD, pad_edge=False)
    headings = ("steps", "rollouts", "right", "valid", "reward", "tokens", "zero variance", "kl", "entropy", "s a step")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "steps" else "right")
    for part in analysis.time:
        own = (percent(part.zero_variance), figure(part.kl, ".3f"), figure(part.entropy, ".3f"))
        table.add_row(f"{part.first}-{part.last}", *_cells(part.line), *own, figure(part.seconds, ".1f"))
    yield table


def _table(dimension: str, lines: Mapping[str, Line], total: Line) -> Table:
    shown = list(lines.items())[:_ROWS]
    table = Table(title=f"by {dimension}", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(dimension, overflow="fold", max_width=60)
    for heading in ("rollouts", "right", "valid", "reward", "tokens", "share", "unscored"):
        table.add_column(heading, justify="right")
    for key, line in shown:
        name = f"{key} {CODES[key][0]}" if key in CODES else "".join(c if c.isprintable() else "?" for c in key)
        table.add_row(Text(name), *_cells(line), percent(line.rollouts / total.rollouts), f"{line.unscored:,}")
    if len(lines) > len(shown):
        table.caption = f"and {len(lines) - len(shown):,} more (--json tells all)"
    return table


def _cells(line: Line) -> tuple[str, ...]:
    shares = percent(line.accuracy), percent(line.valid_rate)
    return f"{line.rollouts:,}", *shares, figure(line.reward, ".2f"), figure(line.executor_tokens, ".0f")


def look_panel(look: Look) -> RenderableType:
    """The run as it stands, for a terminal of any width."""
    head = Table.grid(padding=(0, 1))
    left = "" if look.done or math.isnan(look.left_s) else f"{timedelta(seconds=round(look.left_s))} left"
    head.add_row(f"step {look.step}/{look.total or '?'}", ProgressBar(look.total or None, look.step, width=40), left)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("reward", f"{figure(look.reward, '.2f')}  {curve(look.rewards)}")
    domains = "  ".join(f"{domain} {percent(share)}" for domain, share in look.domains.items())
    table.add_row("right", f"{percent(look.accuracy)} %   {domains}")
    table.add_row("valid", f"{percent(look.valid_rate)} %")
    table.add_row("zero variance", f"{percent(look.zero_variance)} % of the groups")
    table.add_row("unscored", f"{look.unscored:,} rollouts of the run")
    table.add_row("tokens/s", f"{figure(look.tokens_per_s, ',.0f')} of policy and executor, while rollouts are made")
    phases = "  ".join(f"{phase} {seconds:.1f}" for phase, seconds in look.seconds.items())
    table.add_row("seconds a step", f"{sum(look.seconds.values()):.1f}   {phases}" if look.seconds else "-")
    table.add_row("cost", f"{look.cost:.4g}")
    if look.validation:
        told = "  ".join(f"{name} {percent(value)}" for name, value in look.validation.items() if name != "step")
        table.add_row("validation", f"step {look.validation.get('step', 0):.0f}: {told}")
    note = Text(f"means over the last {RECENT} steps; {look.log}", style="dim", overflow="fold")
    return Panel(Group(head, "", table, "", note), title=Text(look.run or "no run yet"), title_align="left")


def curve(values: Sequence[float], width: int = _WIDTH) -> str:
    """The values as a row of bars, several steps to one where there are many."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return ""
    size = math.ceil(len(known) / width)
    means = [sum(part) / len(part) for part in (known[i : i + size] for i in range(0, len(known), size))]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BARS[1 + round((len(_BARS) - 2) * (mean - low) / span)] for mean in means)


def percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f}"


def figure(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
