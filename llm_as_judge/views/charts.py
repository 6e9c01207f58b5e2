"""Charts as files: learning curve, comparison of methods, verdicts of a judge, mixture of datasets."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_as_judge.events import EvalEvent, StepReport
from llm_as_judge.files import write_whole
from llm_as_judge.types import DOMAINS

if TYPE_CHECKING:  # these import torch
    from llm_as_judge.evaluation.baselines import Row
    from llm_as_judge.evaluation.comparison import Compared

_SMOOTHING = 0.85
_COSTS = {"tokens": "executor tokens a problem", "cost": "cost of the executor a problem"}
_COLOURS = {"math": "#1f77b4", "code": "#2ca02c", "qa": "#d62728"}


_VERDICTS = (
    ("true_accepts", "right, accepted", "#2c7fb8"),
    ("true_rejects", "wrong, refused", "#a6bddb"),
    ("false_rejects", "right, refused", "#fdae6b"),
    ("false_accepts", "wrong, accepted", "#d7301f"),
    ("abstained", "abstained", "#bdbdbd"),
)


def pyplot() -> Any:
    """matplotlib without a display; imported when something is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _smooth(values: Sequence[float]) -> list[float]:
    """Exponential moving average in percent that skips NaN."""
    average, smoothed = math.nan, []
    for value in values:
        if not math.isnan(value):
            average = value if math.isnan(average) else _SMOOTHING * average + (1 - _SMOOTHING) * value
        smoothed.append(100 * average)
    return smoothed


def learning_curve(
    steps: Sequence[StepReport],
    path: Path,
    before: float,
    after: float,
    evals: Sequence[EvalEvent] = (),
) -> None:
    """Accuracy by domain, reward and valid rate over steps, with validations and held-out accuracy before and after.

    If the judge abstained, a band shows the accuracy from all abstentions wrong to all right.
    """
    library = pyplot()
    numbers = [step.step for step in steps]
    figure, (left, right) = library.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for domain in DOMAINS:
        shares = [step.domain_accuracy.get(domain, math.nan) for step in steps]
        left.plot(numbers, _smooth(shares), label=domain, color=_COLOURS[domain])
    left.plot(numbers, _smooth([step.accuracy for step in steps]), label="all", color="black", linewidth=2)
    if any(step.abstained for step in steps):
        low, high = (_smooth([step.between[side] for step in steps]) for side in (0, 1))
        left.fill_between(numbers, low, high, color="black", alpha=0.15, label="left open by the judge")
    checked = [(event.step, 100 * event.scores["overall"]) for event in evals if "overall" in event.scores]
    if checked:
        left.plot(*zip(*checked, strict=True), "kD--", markersize=5, linewidth=0.8, label="validation")
    if numbers:
        left.plot([numbers[0], numbers[-1]], [100 * before, 100 * after], "k*", markersize=11, label="held out")
    left.set(xlabel="step", ylabel="percent right", title="Training rollouts (smoothed)", ylim=(0, 100))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, fontsize="small", frameon=False)
    rewards = [value / 100 for value in _smooth([step.reward_mean for step in steps])]
    lines = right.plot(numbers, rewards, color="black", label="reward")
    right.set(xlabel="step", ylabel="mean reward", title="Reward and valid generation rate (smoothed)")
    rate = right.twinx()
    lines += rate.plot(numbers, _smooth([step.valid_rate for step in steps]), color="#7f7f7f", label="valid")
    rate.set(ylabel="valid, percent", ylim=(0, 102))
    right.legend(
        handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize="small", frameon=False
    )
    for axis in (left, right):
        axis.xaxis.get_major_locator().set_params(integer=True)
    _write(figure, path, dpi=110)


def confusion_chart(counts: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Stacked bars in shares of the pairs; ``counts`` are ``Counts.as_json``."""
    library = pyplot()
    figure, axes = library.subplots(figsize=(8, 1.2 + 0.5 * len(counts)))
    kinds = [str(row["kind"]) for row in counts]
    left = [0.0] * len(counts)
    for name, label, colour in _VERDICTS:
        shares = [100 * row[name] / row["pairs"] if row["pairs"] else 0.0 for row in counts]
        axes.barh(kinds, shares, left=left, label=label, color=colour)
        for i, (share, row) in enumerate(zip(shares, counts, strict=True)):
            if share > 4:
                axes.text(left[i] + share / 2, i, str(row[name]), ha="center", va="center", fontsize=8)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the pairs")
    axes.set_title(title)
    axes.legend(ncols=len(_VERDICTS), loc="upper center", bbox_to_anchor=(0.5, -0.25), fontsize=8, frameon=False)
    _write(figure, path, dpi=120, bbox_inches="tight")


def mixture_chart(sides: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Lines by dataset, repetitions and lengths of each side; ``sides`` are those of ``data.overview``."""
    library = pyplot()
    from matplotlib.patches import Patch

    figure, axes = library.subplots(len(sides), 2, figsize=(11, 2.6 * len(sides) + 0.6), squeeze=False)
    for (side, sets), (left, right) in zip(sides.items(), axes, strict=True):
        sets = {name.replace("$", r"\$"): facts for name, facts in sets.items()}  # not mathematics
        names = sorted(sets, key=lambda name: (DOMAINS.index(sets[name]["domain"]), name))
        tint = [_COLOURS[sets[name]["domain"]] for name in names]
        total = sum(sets[name]["lines"] for name in names)
        bars = left.barh(names, [sets[name]["lines"] for name in names], color=tint)
        left.bar_label(
            bars,
            [f" {sets[n]['lines'] / total:.0%}, each {sets[n]['repetition']:.3g} times" for n in names],
            fontsize=8,
        )
        left.set(title=f"{side}: {total:,} lines".replace("$", r"\$"), xlabel="lines")
        left.margins(x=0.45)
        right.barh(names, [sets[name]["length"]["p95"] for name in names], color=tint, alpha=0.35)
        right.barh(names, [sets[name]["length"]["median"] for name in names], color=tint)
        right.set(title="characters: median, 95th percentile (pale)", xscale="log")
        for axis in (left, right):
            axis.invert_yaxis()
            axis.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour) for colour in _COLOURS.values()]
    figure.legend(handles, list(_COLOURS), loc="lower center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0.07 / len(sides), 1, 1))
    _write(figure, path, dpi=110)


def comparison_chart(compared: Sequence[Compared], fronts: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Accuracy against each kind of cost in ``fronts`` (``tokens``, ``cost``), with the Pareto front as a line. Every
    row has a number; bounds are hollow.
    """
    library = pyplot()
    figure, panels = library.subplots(
        1, len(fronts), figsize=(5.2 * len(fronts) + 3.4, 5), squeeze=False, constrained_layout=True
    )
    scored = {number: one for number, one in enumerate(compared, 1) if one.row.overall.n}
    for axes, (kind, best) in zip(panels[0], fronts.items(), strict=True):
        widest = max((getattr(one.row, kind) for one in scored.values()), default=0) or 1.0
        there: dict[tuple[int, int], list[int]] = {}  # numbers whose marks overlap
        for number, one in scored.items():
            row, share = one.row, one.row.overall
            x, y = getattr(row, kind), 100 * share.value
            colour = "#999999" if one.bound else "#d62728" if one.difference is None else "#1f77b4"
            axes.errorbar(
                x, y, [[y - 100 * share.low], [100 * share.high - y]], fmt="o", color=colour, markersize=7,
                elinewidth=1, markerfacecolor="white" if one.bound else colour, zorder=1 if one.bound else 2,
                label=f"{number}  {row.name}{', a bound' if one.bound else ''}",
            )  # fmt: skip
            there.setdefault((round(25 * x / widest), round(y / 3)), []).append(number)
        for numbers in there.values():
            row = scored[numbers[-1]].row
            place = (getattr(row, kind), 100 * row.overall.value)
            text = ", ".join(map(str, numbers))
            axes.annotate(text, place, xytext=(6, 5), textcoords="offset points", fontsize=9, zorder=5)
        if best:
            costs, shares = [getattr(row, kind) for row in best], [100 * row.overall.value for row in best]
            axes.plot(
                [*costs, 1.05 * widest], [*shares, shares[-1]], "--", drawstyle="steps-post", color="#555555",
                linewidth=1, zorder=0, label="Pareto front, bounds left out",
            )  # fmt: skip
        axes.set(xlabel=_COSTS[kind], ylabel="percent right [95 %]", ylim=(0, 104), xlim=(0, 1.1 * widest))
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0][-1].get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: names[i].startswith("Pareto"))
    figure.legend(
        [handles[i] for i in order], [names[i] for i in order], loc="outside right center", frameon=False, fontsize=8
    )
    _write(figure, path, dpi=110)


def _write(figure: Any, path: Path, **options: Any) -> None:
    """Writes the figure in the format of the file's suffix, whole or not at all."""
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.lower().removeprefix("."), **options)
    finally:
        pyplot().close(figure)
    write_whole(path, drawn.getvalue())
