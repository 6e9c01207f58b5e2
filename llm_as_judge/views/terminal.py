"""Terminal output: a progress bar with the time left, one line per step, and the tables of results."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich import progress as bars
from rich.box import MARKDOWN, SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from llm_as_judge.evaluation.intervals import Estimate
from llm_as_judge.types import Domain, in_order

if TYPE_CHECKING:  # these import torch
    from llm_as_judge.evaluation.ablation import HeldOut, Worth
    from llm_as_judge.evaluation.baselines import Method
    from llm_as_judge.evaluation.comparison import Compared
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.events import StepReport
    from llm_as_judge.judging.calibration import Counts
    from llm_as_judge.llm.client import Usage

#: Seconds between lines about a task that goes on, where no bar is shown.
LINE_EVERY_S = 60.0
#: Share of answers that the judge may leave open before an alarm is shown.
ABSTENTION_ALARM = 0.1
#: Reasons shown of each kind, and characters of each.
_REASONS, _LONGEST = 5, 160
_COUNTS = ("calls", "cached", "failed", "prompt_tokens", "completion_tokens")


class TerminalProgress:
    """``assembly.progress.Progress``: on a terminal, bars for running work and lines for finished work; in a file, a
    line a minute for running work.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        done = bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()
        times = bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn()
        self._bar = bars.Progress(*done, *times, console=console, transient=True)
        self._tasks: dict[str, bars.TaskID] = {}
        self._told: dict[str, tuple[float, float]] = {}  # of a task: when it began, and when a line was last written

    def __enter__(self) -> "TerminalProgress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        # Lines of a file are not wrapped, so that they can be searched.
        self.console.print(line, highlight=False, soft_wrap=not self.console.is_terminal)

    def step(self, report: "StepReport", total: int) -> None:
        self._show("training", report.step, total)
        self.say(step_line(report, total))
        if report.abstained > ABSTENTION_ALARM:
            self.say(abstention_alarm(report.abstained, report.between, report.judged_by))

    def advance(self, what: str, done: int, total: int) -> None:
        self._show(what, done, total)
        now = monotonic()
        begun, last = self._told.setdefault(what, (now, now))
        if not self.console.is_terminal and done < total and now - last >= LINE_EVERY_S:
            left = (now - begun) / max(done, 1) * (total - done)
            self.say(f"{what}: {done} of {total}, about {left / 60:.0f} min left")
            self._told[what] = begun, now
        if done >= total:
            del self._told[what]

    def _show(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)
        if done >= total:
            self._bar.remove_task(self._tasks.pop(what))


def make_table(title: str, first: str, *others: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    """Make a table whose first column is text and whose other columns are numbers."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold", max_width=60)
    for heading in others:
        table.add_column(Text(heading), justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def percent(share: float) -> str:
    return figure(100 * share, ".0f")


def figure(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)


def abstention_alarm(share: float, between: tuple[float, float], tier: str) -> str:
    asked = "see its replies in the log, raise judge.max_tokens or use another judge"
    cure = "judge.function gave None, failed or took too long; the verdicts in the log say which"
    return (
        f"ALARM: the judge left {100 * share:.0f} % of the answers open, so that between {100 * between[0]:.0f} and "
        f"{100 * between[1]:.0f} % are right; {cure if tier == 'function' else asked}"
    )


def interval(estimate: Estimate | None) -> str:
    if estimate is None or math.isnan(estimate.value):
        return "-"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.0f}-{100 * estimate.high:.0f}]"


def recorded(scores: Mapping[str, Any], name: str) -> str:
    """Write a share in a results file, in percent with its interval."""
    if scores.get(name) is None:
        return "-"
    value, low, high = (100 * share for share in (scores[name], *scores["interval"][name]))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def step_line(report: "StepReport", total: int) -> str:
    """Write the metrics of a step in one line; accuracies are percentages of its own rollouts."""
    domains = " ".join(f"{d} {percent(report.domain_accuracy[d]):>3}" for d in in_order(report.domain_accuracy))
    kl = "" if math.isnan(report.kl) else f"kl {report.kl:.3f}  "
    unscored = f" unscored {report.unscored}" if report.unscored else ""
    first = f" (first attempt {percent(report.first_valid_rate)})" if report.repairs else ""
    right = f"{percent(report.accuracy):>3}%"
    if report.abstained:
        low, high = report.between
        right = f"{100 * low:.0f}-{100 * high:.0f}%, {100 * report.abstained:.0f}% left open by the judge"
    score = "" if math.isnan(report.score) else f"score {report.score:.2f}  "
    return (
        f"step {report.step:{len(str(total))}d}/{total}  reward {report.reward_mean:5.2f}  "
        f"right {right} ({domains})  {score}valid {percent(report.valid_rate):>3}%{first}  "
        f"tokens {report.executor_tokens:3.0f}  "
        f"{kl}entropy {report.entropy:.3f}  {sum(report.seconds.values()):.1f} s{unscored}"
    )


def validation_line(step: int, summary: "Summary") -> str:
    """Write a line on a validation during training (``training.eval_every``)."""
    domains = " ".join(f"{d} {percent(e.value):>3}" for d, e in summary.domains.items())
    return (
        f"step {step}  validation: right {interval(summary.overall)}% ({domains}) of {summary.overall.n} problems  "
        f"valid {percent(summary.valid_rate.value):>3}%"
    )


def result_table(lines: "Mapping[str, Summary | Method]", problems: int) -> Table:
    """Make a table of accuracies in percent with 95 % intervals on the held-out problems."""
    title = f"Percent right on {problems} held-out problems [95 % interval],\nand executor tokens per problem"
    further, domains = _further(lines.values()), in_order(d for line in lines.values() for d in line.domains)
    table = make_table(title, "", "overall", *domains, "valid", "tokens", *further)
    for name, line in lines.items():
        shares = line.overall, *(line.domains.get(d) for d in domains), getattr(line, "valid_rate", None)
        table.add_row(name, *map(interval, shares), f"{line.tokens:.0f}", *(cell(line) for cell in further.values()))
    return table


def _further(lines: "Iterable[Summary | Method]") -> "dict[str, Callable[[Summary | Method], str]]":
    """Return columns for scores between 0 and 1, and for problems without a verdict, where there are any."""
    lines, columns = list(lines), dict[str, Callable[["Summary | Method"], str]]()
    if any(line.score is not None for line in lines):
        columns["mean score"] = lambda line: interval(line.score)
    if any(line.overall.unscored for line in lines):
        columns["unscored"] = lambda line: str(line.overall.unscored)
    return columns


def markdown(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    table = Table(*headings, box=MARKDOWN)
    for row in rows:
        table.add_row(*(Text(str(cell).replace("|", "\\|")) for cell in row))
    console = Console(width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().strip()


def comparison_table(compared: "Sequence[Compared]") -> str:
    """Write the table of ``compare``: accuracies in percent, intervals in brackets."""
    domains = in_order(d for one in compared for d in one.row.domains)
    policy = next(one.row.name for one in compared if one.difference is None)
    further = _further(one.row for one in compared)
    rows = []
    for row, difference in ((one.row, one.difference) for one in compared):
        estimates = map(interval, (row.overall, *(row.domains.get(d) for d in domains)))
        points = "" if difference is None else signed(difference, 100, 1)
        costs = f"{row.tokens:.0f}", f"{row.cost:.3g}", f"{row.seconds:.2f}"
        shares = map(percent, (row.lint_valid, row.ran.value, row.idle))
        rows.append((row.name, *estimates, *costs, *shares, *(cell(row) for cell in further.values()), points))
    names = (
        "percent right [95 %]", "overall", *domains, "tokens", "cost", "seconds", "lint-valid %", "ran to an answer %",
        "no operator %", *further, f"{policy} minus this, points",
    )  # fmt: skip
    datasets = list(dict.fromkeys(name for one in compared for name in one.row.datasets))
    if len(datasets) <= len(domains):
        return markdown(names, rows)
    own = [(one.row.name, *(interval(one.row.datasets.get(name)) for name in datasets)) for one in compared]
    return f"{markdown(names, rows)}\n{markdown((names[0], *datasets), own)}"


def ablation_table(full: "Sequence[HeldOut]", parts: "Sequence[Worth]") -> str:
    """Write the table of ``compare --ablate``: accuracies in percent, differences in points."""
    heading = (
        "without", "accuracy %", "worth of the part, points [95 %]", "tokens", "tokens added by the part [95 %]",
    )  # fmt: skip
    accuracy, tokens = (fmean(values) for values in zip(*full, strict=True))
    rows = [("nothing", f"{100 * accuracy:.1f}", "", f"{tokens:.0f}", "")]
    for part in parts:
        worth, added = signed(part.worth, 100, 1), signed(part.tokens_added, 1, 0)
        rows.append((part.part, f"{100 * part.accuracy:.1f}", worth, f"{part.tokens:.0f}", added))
    return markdown(heading, rows)


def signed(difference: Estimate, scale: float, digits: int) -> str:
    """Write a difference with its interval, if it has one."""
    value, low, high = (f"{scale * x:+.{digits}f}" for x in (difference.value, difference.low, difference.high))
    return "-" if math.isnan(difference.value) else value if math.isnan(difference.low) else f"{value} [{low}, {high}]"


def gain_line(gain: Estimate) -> str:
    if math.isnan(gain.value):
        return "Trained minus untrained policy: no problem was scored in both evaluations."
    return f"Trained minus untrained policy: {signed(gain, 100, 1)} points, paired over {gain.n} problems"


def judge_line(judge: Mapping[str, Any]) -> str:
    """Write the agreement of the LLM judge in a results file; empty if it decided nothing."""
    if judge.get("agreement") is None:
        return ""
    return (
        f"The LLM judge alone agrees with the reference on {100 * judge['agreement']:.1f} % of {judge['pairs']} "
        f"answers: {judge['false_accepts']} false accepts, {judge['false_rejects']} false rejects, "
        f"{judge['abstained']} abstained."
    )


def single_shapes_table(accuracies: Mapping[str, Mapping[Domain, float]], learned: Mapping[Domain, str]) -> Table:
    domains = in_order(domain for own in accuracies.values() for domain in own)
    rows = ((shape, *cells) for shape, cells in shape_cells(accuracies, learned, domains))
    return make_table("Percent right of each workflow\nmeasured alone (* = learned)", "workflow", *domains, rows=rows)


def shape_cells(
    accuracies: Mapping[str, Mapping[Any, float | None]], learned: Mapping[Any, str], domains: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each shape with its cells by domain; a star marks the shape that the policy writes most."""
    for shape, right in accuracies.items():
        shares = [(d, math.nan if (share := right.get(d)) is None else share) for d in domains]
        yield shape, [f"{percent(share):>3}{'*' if learned.get(d) == shape else ' '}" for d, share in shares]


def shapes_table(before: Mapping[Domain, Mapping[str, int]], after: Mapping[Domain, Mapping[str, int]]) -> Table:
    """Make a table of the three most frequent shapes of each domain, before and after."""
    table = Table("domain", "before", "after", title="What the policy writes", box=SIMPLE_HEAD)
    for domain in after:
        table.add_row(domain, _top(before.get(domain, {})), _top(after[domain]))
    return table


def calibration_table(counts: "Sequence[Counts]") -> Table:
    """Make a table of verdicts of a judge compared with the labels, by kind of candidate."""
    headings = ("kind", "pairs", "agreement", "kappa", "false accepts", "false rejects", "abstained")
    table = make_table("verdicts by kind of candidate", *headings)
    for row in counts:
        rates = ["-" if value is None else f"{value:.4f}" for value in (row.agreement, row.kappa)]
        numbers = (row.false_accepts, row.false_rejects, row.abstained)
        table.add_row(row.kind, str(row.pairs), *rates, *map(str, numbers))
    return table


def _top(shapes: Mapping[str, int]) -> str:
    total = sum(shapes.values()) or 1
    ranked = sorted(shapes.items(), key=lambda item: -item[1])[:3]
    return "\n".join(f"{100 * count / total:3.0f} % {name}" for name, count in ranked)


def summary_tables(rows: "Sequence[tuple[str, Summary]]") -> Iterator[RenderableType]:
    title = "Official metric, and percent right by it"
    table = make_table(title, "dataset", "metric", "[95 % interval]", "right", "problems")
    for name, row in rows:
        own = [name, interval(row.overall)]
        if row.between:  # the judge abstained: from all abstentions wrong to all right
            low, high = (100 * share for share in row.between)
            own = [name, f"{low:.1f} to {high:.1f}, {row.abstained} left open"]
        for label, estimate in ((label, e) for one in row.official.values() for label, e in one.items()):
            table.add_row(own[0], label, interval(estimate), own[1], str(estimate.n))
            own = ["", ""]
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


def troubles(rows: "Mapping[str, Summary]") -> Iterator[str]:
    """Yield workflows that did not run, ended early or could not be scored, with reasons; alarms for abstentions."""
    names = ("invalid, not run", "ended without an answer", "unscored")
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
            yield f"{name}: {abstention_alarm(row.abstained / judged, row.between, row.judged_by)}"


def usage_table(usage: "Mapping[str, Usage]") -> Table:
    table = make_table("Models asked", "", "calls", "cached", "failed", "prompt tokens", "reply tokens", "cost")
    for role, own in {**{role: [u] for role, u in usage.items()}, "all": list(usage.values())}.items():
        counts = (f"{sum(getattr(u, name) for u in own):,}" for name in _COUNTS)
        if role != "all" or len(own) > 1:
            table.add_row(role.replace("_", " "), *counts, f"{sum(u.cost for u in own):.4g}")
    return table
