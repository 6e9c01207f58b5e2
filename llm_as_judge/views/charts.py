"""Charts as files (learning curve, comparison), and the plots of a run's report as SVG."""

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure

from llm_as_judge.evaluation.analysis import ENDS, Story
from llm_as_judge.evaluation.intervals import Estimate, mean_known
from llm_as_judge.events import EvalEvent, StepReport
from llm_as_judge.files import write_whole
from llm_as_judge.types import Domain, in_order

if TYPE_CHECKING:  # these import torch
    from llm_as_judge.evaluation.baselines import Method
    from llm_as_judge.evaluation.comparison import Compared

_COLOURS = {"math": "#1f77b4", "code": "#2ca02c", "qa": "#d62728", "all": "black"}
_SHAPES = 8  # of a domain
_LONGEST = 60  # characters of a name
_WINDOW = 10  # steps that a line is averaged over
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "report", "text.parse_math": False, "font.size": 9, "axes.grid": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid.axis": "y", "grid.color": "#e8ebf0",
    "axes.axisbelow": True, "legend.frameon": False, "figure.constrained_layout.use": True,
}  # fmt: skip
_LEGEND: Mapping[str, Any] = {"loc": "upper center", "fontsize": 8, "frameon": False}


def running(values: Sequence[float]) -> list[float]:
    """Average over the last steps, without NaN."""
    return [mean_known(values[max(0, i - _WINDOW + 1) : i + 1]) for i in range(len(values))]


def learning_curve(
    steps: Sequence[StepReport], path: Path, before: Estimate, after: Estimate, evals: Sequence[EvalEvent] = (),
    bounds: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Plot accuracy by domain, reward and valid rate over steps, with validations and held-out accuracy at both ends.

    ``bounds`` are held-out accuracies drawn as horizontal lines, such as those of the oracles. If the judge abstained,
    a band shows the accuracy from all abstentions wrong to all right.
    """
    numbers = [step.step for step in steps]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, shares in _accuracies(steps).items():
        left.plot(numbers, running(shares), label=name, color=_COLOURS.get(name))
    if any(step.abstained for step in steps):
        low, high = (running([step.between[side] for step in steps]) for side in (0, 1))
        left.fill_between(numbers, low, high, color="black", alpha=0.15, label="left open by the judge")
    _validations(left, evals)
    if numbers:
        shares = [before.value, after.value]
        reach = [[e.value - e.low for e in (before, after)], [e.high - e.value for e in (before, after)]]
        ends = [numbers[0] - 1, numbers[-1]]
        left.errorbar(ends, shares, reach, fmt="k*", markersize=11, elinewidth=1, capsize=3, label="held out [95 %]")
    for (name, share), dashes in zip((bounds or {}).items(), ("--", ":"), strict=False):
        left.axhline(share, linestyle=dashes, color="#7f7f7f", label=name)
    left.set(title="Share right of training rollouts, and of held-out problems", ylim=(0, 1.03))
    right.plot(numbers, running([step.reward_mean for step in steps]), color="black", label="mean reward")
    right.set(title="Reward and share of valid workflows")
    rate = right.twinx()
    rate.plot(numbers, running([step.valid_rate for step in steps]), color="#7f7f7f", label="valid")
    rate.set(ylabel="valid (grey)", ylim=(0, 1.02))
    left.legend(bbox_to_anchor=(0.5, -0.14), ncols=4, **_LEGEND)
    for axis in (left, right):
        axis.set_xlabel(f"step (means of {_WINDOW} steps)")
        axis.xaxis.get_major_locator().set_params(integer=True)
    _write(figure, path)


def comparison_chart(compared: "Sequence[Compared]", best: "Sequence[Method]", path: Path) -> None:
    """Plot accuracy against executor tokens, with the Pareto front as a line. Rows have numbers; bounds are hollow."""
    figure = Figure(figsize=(8.6, 5), layout="constrained")
    axes = figure.subplots()
    for number, one in enumerate(compared, 1):
        row, share = one.row, one.row.overall
        if not share.n:
            continue
        x, y, low, high = row.tokens, 100 * share.value, 100 * share.low, 100 * share.high
        colour = "#999999" if one.bound else "#d62728" if one.difference is None else "#1f77b4"
        face, label = ("white", f"{row.name}, a bound") if one.bound else (colour, row.name)
        named = f"{number}  {label}"
        axes.errorbar(x, y, [[y - low], [high - y]], fmt="o", color=colour, elinewidth=1, mfc=face, label=named)
        axes.annotate(str(number), (x, y), xytext=(6, 5), textcoords="offset points", fontsize=9)
    if best:
        tokens, shares = [row.tokens for row in best], [100 * row.overall.value for row in best]
        axes.plot(tokens, shares, "--", drawstyle="steps-post", color="#555555", label="Pareto front without bounds")
    axes.set(xlabel="executor tokens a problem", ylabel="percent right [95 %]", ylim=(0, 104))
    axes.set_xlim(left=0)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    _write(figure, path)


@dataclass(frozen=True, slots=True)
class Plot:
    heading: str
    note: str
    image: str  # data URI


def plots(story: Story) -> Iterator[Plot]:
    """Yield the plots of a run's report, without those that the run has no figures for."""
    steps = story.log.steps

    def each(*kinds: str) -> dict[str, list[float]]:
        return {kind.replace("_", " "): [getattr(step, kind) for step in steps] for kind in kinds}

    def named(kind: str) -> dict[str, list[float]]:
        names = dict.fromkeys(name for step in steps for name in getattr(step, kind))
        return {name: [getattr(step, kind).get(name, math.nan) for step in steps] for name in names}

    flat = [step.skipped_groups / step.groups if step.groups else math.nan for step in steps]
    curves: dict[str, tuple[str, Mapping[str, Sequence[float]]]] = {
        "Reward": (f"Thin: every step. Thick: mean of {_WINDOW} steps.", each("reward_mean")),
        "Accuracy": ("Of scored rollouts. Crosses: validations.", _accuracies(steps)),
        "Valid workflows and contrast": (
            "Groups without contrast give no gradient.",
            each("valid_rate", "truncated") | {"groups without contrast": flat},
        ),
        "KL and entropy": ("Per token; KL to the reference policy.", each("kl", "entropy")),
        "Reward terms": ("Means over scored rollouts, each on its own scale.", named("terms")),
        "Cost": ("Of the executor's replies so far, also of those from the cache.", {"cost": story.costs}),
        "Executor tokens": ("Per workflow.", each("executor_tokens")),
        "Time": ("Seconds of a step by phase.", named("seconds")),
    }
    with matplotlib.rc_context(_STYLE):
        for heading, (note, lines) in curves.items():
            if lines:
                yield Plot(heading, note, _curves(steps, lines, story.log.evals if heading == "Accuracy" else ()))
        if domains := in_order([*story.before, *story.after]):
            note = f"Share of a domain's rollouts in the first (grey) and last {ENDS:.0%} of the steps."
            yield Plot("Workflow shapes, before and after", note, _shapes(story, domains))


def _accuracies(steps: Sequence[StepReport]) -> dict[str, list[float]]:
    """Compute the accuracy of each step: of all rollouts, and of each domain with rollouts."""
    names = in_order(domain for step in steps for domain in step.domain_accuracy)
    found = {d: [step.domain_accuracy.get(d, math.nan) for step in steps] for d in names}
    known = {d: values for d, values in found.items() if not all(map(math.isnan, values))}
    return {"all": [step.accuracy for step in steps], **known}


def _validations(axis: Any, evals: Sequence[EvalEvent]) -> None:
    if checked := [(event.step, event.scores["overall"]) for event in evals if "overall" in event.scores]:
        axis.plot(*zip(*checked, strict=True), "kx--", linewidth=0.8, label="validation")


def _curves(steps: Sequence[StepReport], lines: Mapping[str, Sequence[float]], evals: Sequence[EvalEvent]) -> str:
    figure = Figure(figsize=(5.6, 3))
    axis: Any = figure.subplots()
    numbers = [step.step for step in steps]
    for i, (name, values) in enumerate(lines.items()):
        colour, marker = _COLOURS.get(name, f"C{i}"), "o" if len(numbers) == 1 else ""
        axis.plot(numbers, values, color=colour, linewidth=0.8, alpha=0.35)
        axis.plot(numbers, running(values), color=colour, linewidth=2, marker=marker, label=_cut(name))
    _validations(axis, evals)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("step", loc="right")
    axis.legend(bbox_to_anchor=(0.5, -0.12), ncols=3, **_LEGEND)
    return _svg(figure)


def _shapes(story: Story, domains: Sequence[Domain]) -> str:
    figure = Figure(figsize=(11.6, 2.5 * len(domains)))
    for axis, domain in zip(figure.subplots(len(domains), 1, squeeze=False).flat, domains, strict=True):
        before, after = (counts.get(domain, Counter()) for counts in (story.before, story.after))
        names = [name for name, _ in (before + after).most_common(_SHAPES)][::-1]
        for counts, shift, colour in ((before, 0.2, "#b9c4d6"), (after, -0.2, _COLOURS.get(domain, "#9467bd"))):
            shares = [counts[name] / max(1, counts.total()) for name in names]
            axis.barh([i + shift for i in range(len(names))], shares, 0.38, color=colour)
        axis.set_yticks(range(len(names)), [_cut(name) for name in names])
        axis.set(title=domain, xlim=(0, 1))
    return _svg(figure)


def _cut(name: str) -> str:
    """Cut a name to limited length, without control characters."""
    name = "".join(c if c.isprintable() else "?" for c in name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _svg(figure: Any) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}"


def _write(figure: Any, path: Path) -> None:
    """Write the figure in the format of the file's suffix, whole or not at all."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.lower().removeprefix("."), dpi=110, bbox_inches="tight")
    write_whole(path, drawn.getvalue())
