"""Terminal output of ``analyze`` and ``monitor``."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from llm_as_judge.evaluation.analysis import Analysis, Line
from llm_as_judge.evaluation.intervals import mean_known
from llm_as_judge.events import Contrast
from llm_as_judge.runlog import LogReader
from llm_as_judge.types import in_order
from llm_as_judge.views.terminal import figure, make_table, percent
from llm_as_judge.workflow.lint.codes import meaning

#: Steps that current figures are averaged over.
RECENT = 10
_ROWS = 12  # of a table
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # steps in the small curve


def analysis_tables(analysis: Analysis) -> Iterator[RenderableType]:
    total = analysis.total
    yield Text(f"{analysis.log}: {total.rollouts:,} rollouts, cost {total.cost:.4g} with cached replies")
    yield Text(f"contrast: {analysis.contrast}")
    named = [*total.executors] if any(total.executors) else []
    used = [f"{name or 'default'}, calls/tokens" for name in named]
    headings = ("rollouts", "right", "valid", "reward", "tokens", *used)
    for dimension, lines in analysis.by.items():
        table = make_table(f"by {dimension}", dimension, *headings, "share", "unscored")
        for key, line in list(lines.items())[:_ROWS]:
            name = "".join(c if c.isprintable() else "?" for c in meaning(key))
            cells = line_cells(line, named)
            table.add_row(Text(name), *cells, percent(line.rollouts / total.rollouts), f"{line.unscored:,}")
        if len(lines) > _ROWS:
            table.caption = f"and {len(lines) - _ROWS:,} more (--json shows all)"
        if lines:
            yield table
    table = make_table("over time", "steps", *headings, "contrast", "kl", "entropy", "s a step")
    for part in analysis.time:
        own = (percent(part.contrast.share), figure(part.kl, ".3f"), figure(part.entropy, ".3f"))
        table.add_row(f"{part.first}-{part.last}", *line_cells(part.line, named), *own, figure(part.seconds, ".1f"))
    yield table


def line_cells(line: Line, executors: Sequence[str] = ()) -> tuple[str, ...]:
    """Return rollouts, right, valid, reward and tokens; calls and tokens of each of ``executors``."""
    shares = percent(line.accuracy), percent(line.valid_rate)
    used = ("{:,}/{:,}".format(*line.executors.get(name, (0, 0))) for name in executors)
    return f"{line.rollouts:,}", *shares, figure(line.reward, ".2f"), figure(line.executor_tokens, ".0f"), *used


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Current state of a run: its step of ``total`` (0: unknown), the time left, and figures by name."""

    run: str
    step: int
    total: int
    left_s: float
    figures: Mapping[str, str]
    note: str

    @property
    def done(self) -> bool:
        return 0 < self.total <= self.step


def look_at_log(reader: LogReader) -> RunStatus:
    """Read what is new in the log, and sum it up; figures are means over the last ``RECENT`` steps."""
    for _ in reader.new():
        pass
    steps, total = reader.steps, int(reader.run.setting("training", "max_steps") or 0)
    recent, last = steps[-RECENT:], steps[-1].step if steps else 0
    phases = dict.fromkeys(phase for step in recent for phase in step.seconds)  # not all steps have all of them
    seconds = {phase: mean_known([step.seconds.get(phase, 0.0) for step in recent]) for phase in phases}
    gaps = [b.time - a.time for a, b in itertools.pairwise(recent)]
    pace = statistics.median(gaps) if gaps else math.nan  # a resumed run has a pause among its steps
    making = seconds.get("generate", 0.0) + seconds.get("execute", 0.0)
    tokens = mean_known([(step.executor_tokens + step.completion_tokens) * step.rollouts for step in recent])
    names = in_order(domain for step in recent for domain in step.domain_accuracy)
    domains = {d: mean_known([step.domain_accuracy.get(d, math.nan) for step in recent]) for d in names}
    kinds = ("reward_mean", "accuracy", "valid_rate")
    reward, right, valid = (mean_known([getattr(step, kind) for step in recent]) for kind in kinds)
    figures = {
        "reward": f"{figure(reward, '.2f')}  {curve([step.reward_mean for step in steps])}",
        "right": f"{percent(right)} %   {_shares(domains)}",
        "valid": f"{percent(valid)} %",
        "contrast": str(Contrast.of(recent)),
        "unscored": f"{sum(step.unscored for step in steps):,} rollouts of the run",
        "tokens/s": f"{figure(tokens / making if making else math.nan, ',.0f')} of policy and executor in rollouts",
        "seconds a step": f"{sum(seconds.values()):.1f}   {'  '.join(f'{p} {s:.1f}' for p, s in seconds.items())}",
        "cost": f"{sum(counts.get('cost', 0.0) for counts in reader.usage.values()):.4g}",
    }
    if reader.evals:
        figures["validation"] = f"step {reader.evals[-1].step}: {_shares(reader.evals[-1].scores)}"
    left = max(0, total - last) * pace if total else math.nan
    return RunStatus(reader.run.id, last, total, left, figures, f"means over the last {RECENT} steps; {reader.path}")


def look_panel(look: RunStatus) -> RenderableType:
    """Draw the state of a run, for a terminal of any width."""
    head = Table.grid(padding=(0, 1))
    left = "" if look.done or math.isnan(look.left_s) else f"{timedelta(seconds=round(look.left_s))} left"
    head.add_row(f"step {look.step}/{look.total or '?'}", ProgressBar(look.total or None, look.step, width=40), left)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in look.figures.items():
        table.add_row(name, Text(value))
    note = Text(look.note, style="dim", overflow="fold")
    return Panel(Group(head, "", table, "", note), title=Text(look.run or "no run yet"), title_align="left")


def curve(values: Sequence[float]) -> str:
    """Draw the values as a row of bars; each bar is a mean if there are many."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return ""
    size = math.ceil(len(known) / _WIDTH)
    means = [statistics.fmean(known[i : i + size]) for i in range(0, len(known), size)]
    low, span = min(means), max(means) - min(means) or 1.0
    return "".join(_BARS[round((len(_BARS) - 1) * (mean - low) / span)] for mean in means)


def _shares(shares: Mapping[Any, float]) -> str:
    return "  ".join(f"{name} {percent(share)}" for name, share in shares.items())
