"""Terminal output of ``analyze`` and ``monitor``."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from llm_as_judge.evaluation.analysis import Analysis, Line
from llm_as_judge.evaluation.metrics import mean_known
from llm_as_judge.runlog import LogReader
from llm_as_judge.types import DOMAINS
from llm_as_judge.views.terminal import make_table
from llm_as_judge.workflow.lint.codes import CODES

#: Steps that current figures are averaged over.
RECENT = 10
_ROWS = 12  # of a table
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # steps in the small curve


def analysis_tables(analysis: Analysis) -> Iterator[RenderableType]:
    """A table for each dimension, and one over time."""
    total = analysis.total
    yield Text(f"{analysis.log}: {total.rollouts:,} rollouts, cost {total.cost:.4g}")
    for dimension, lines in analysis.by.items():
        if lines:
            yield _dimension(dimension, lines, total)
    headings = ("steps", "rollouts", "right", "valid", "reward", "tokens", "zero variance", "kl", "entropy", "s a step")
    table = make_table("over time", *headings)
    for part in analysis.time:
        own = (percent(part.zero_variance), figure(part.kl, ".3f"), figure(part.entropy, ".3f"))
        table.add_row(f"{part.first}-{part.last}", *_cells(part.line), *own, figure(part.seconds, ".1f"))
    yield table


def _dimension(dimension: str, lines: Mapping[str, Line], total: Line) -> Table:
    headings = ("rollouts", "right", "valid", "reward", "tokens", "share", "unscored")
    table = make_table(f"by {dimension}", dimension, *headings)
    for key, line in list(lines.items())[:_ROWS]:
        name = f"{key} {CODES[key][0]}" if key in CODES else "".join(c if c.isprintable() else "?" for c in key)
        table.add_row(Text(name), *_cells(line), percent(line.rollouts / total.rollouts), f"{line.unscored:,}")
    if len(lines) > _ROWS:
        table.caption = f"and {len(lines) - _ROWS:,} more (--json shows all)"
    return table


def _cells(line: Line) -> tuple[str, ...]:
    shares = percent(line.accuracy), percent(line.valid_rate)
    return f"{line.rollouts:,}", *shares, figure(line.reward, ".2f"), figure(line.executor_tokens, ".0f")


@dataclass(frozen=True, slots=True)
class Look:
    """Current state of a run. Figures are means over the last ``RECENT`` steps; NaN before the first step."""

    log: Path
    run: str
    step: int
    total: int  # 0: unknown
    left_s: float  # estimated seconds to the last step
    reward: float
    rewards: Sequence[float]  # of every step
    accuracy: float
    domains: Mapping[str, float]
    valid_rate: float
    zero_variance: float
    unscored: int  # of the whole run
    tokens_per_s: float  # of executor and policy, while rollouts are made
    seconds: Mapping[str, float]  # of a step, by phase
    cost: float  # of the whole run
    validated: int  # step of the last validation
    validation: Mapping[str, float]

    @property
    def done(self) -> bool:
        return 0 < self.total <= self.step


def look_at_log(reader: LogReader) -> Look:
    """Reads what is new in the log, and sums it up."""
    for _ in reader.new():
        pass
    steps, training = reader.steps, reader.run.settings.get("training")
    recent, last = steps[-RECENT:], steps[-1].step if steps else 0
    total = int(training.get("max_steps") or 0) if isinstance(training, Mapping) else 0
    phases = recent[-1].seconds if recent else ()
    seconds = {phase: mean_known([step.seconds.get(phase, 0.0) for step in recent]) for phase in phases}
    gaps = [b.time - a.time for a, b in itertools.pairwise(recent)]
    pace = statistics.median(gaps) if gaps else math.nan  # a resumed run has a pause among its steps
    making = seconds.get("generate", 0.0) + seconds.get("execute", 0.0)
    tokens = mean_known([(step.executor_tokens + step.completion_tokens) * step.rollouts for step in recent])
    groups, evals = sum(step.groups for step in recent), reader.evals
    return Look(
        log=reader.path,
        run=reader.run.id,
        step=last,
        total=total,
        left_s=max(0, total - last) * pace if total else math.nan,
        reward=mean_known([step.reward_mean for step in recent]),
        rewards=[step.reward_mean for step in steps],
        accuracy=mean_known([step.accuracy for step in recent]),
        domains={d: mean_known([step.domain_accuracy.get(d, math.nan) for step in recent]) for d in DOMAINS},
        valid_rate=mean_known([step.valid_rate for step in recent]),
        zero_variance=sum(step.skipped_groups for step in recent) / groups if groups else math.nan,
        unscored=sum(step.unscored for step in steps),
        tokens_per_s=tokens / making if making else math.nan,
        seconds=seconds,
        cost=sum(counts.get("cost", 0.0) for counts in reader.usage.values()),
        validated=evals[-1].step if evals else 0,
        validation=evals[-1].scores if evals else {},
    )


def look_panel(look: Look) -> RenderableType:
    """The state of a run, for a terminal of any width."""
    head = Table.grid(padding=(0, 1))
    left = "" if look.done or math.isnan(look.left_s) else f"{timedelta(seconds=round(look.left_s))} left"
    head.add_row(f"step {look.step}/{look.total or '?'}", ProgressBar(look.total or None, look.step, width=40), left)
    domains = "  ".join(f"{domain} {percent(share)}" for domain, share in look.domains.items())
    phases = "  ".join(f"{phase} {seconds:.1f}" for phase, seconds in look.seconds.items())
    rows = {
        "reward": f"{figure(look.reward, '.2f')}  {curve(look.rewards)}",
        "right": f"{percent(look.accuracy)} %   {domains}",
        "valid": f"{percent(look.valid_rate)} %",
        "zero variance": f"{percent(look.zero_variance)} % of the groups",
        "unscored": f"{look.unscored:,} rollouts of the run",
        "tokens/s": f"{figure(look.tokens_per_s, ',.0f')} of policy and executor, while rollouts are made",
        "seconds a step": f"{sum(look.seconds.values()):.1f}   {phases}" if look.seconds else "-",
        "cost": f"{look.cost:.4g}",
    }
    if look.validation:
        scores = "  ".join(f"{name} {percent(value)}" for name, value in look.validation.items())
        rows["validation"] = f"step {look.validated}: {scores}"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    note = Text(f"means over the last {RECENT} steps; {look.log}", style="dim", overflow="fold")
    return Panel(Group(head, "", table, "", note), title=Text(look.run or "no run yet"), title_align="left")


def curve(values: Sequence[float], width: int = _WIDTH) -> str:
    """The values as a row of bars; each bar is a mean if there are more values than ``width``."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return ""
    size = math.ceil(len(known) / width)
    means = [statistics.fmean(known[i : i + size]) for i in range(0, len(known), size)]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(_BARS[1 + round((len(_BARS) - 2) * (mean - low) / span)] for mean in means)


def percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f}"


def figure(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
