"""Pictures: a run's learning curve, methods compared, a judge's verdicts against the labels, a mixture of datasets."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_as_judge.files import write_whole
from llm_as_judge.types import DOMAINS

if TYPE_CHECKING:  # these are torch's neighbours
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


def _pyplot() -> Any:
    """matplotlib without a screen; loaded when something is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _smooth(values: Sequence[float | None]) -> list[float]:
    """Exponential moving average that passes over what is missing."""
    average, smoothed = math.nan, []
    for value in values:
        if value is not None and not math.isnan(value):
            average = value if math.isnan(average) else _SMOOTHING * average + (1 - _SMOOTHING) * value
        smoothed.append(average)
    return smoothed


def learning_curve(
    steps: Sequence[Mapping[str, Any]],
    path: Path,
    before: float,
    after: float,
    validations: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Accuracy by domain, and reward with the valid rate, over steps; validations, and held-out accuracy before and
    after, as marks. Where the judge left answers open, a band from all of them wrong to all of them right.
    """
    pyplot = _pyplot()
    numbers = [s["step"] for s in steps]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for domain in DOMAINS:
        shares = [(s.get("domain_accuracy") or {}).get(domain) for s in steps]
        left.plot(numbers, [100 * v for v in _smooth(shares)], label=domain, color=_COLOURS[domain])
    overall = _smooth([s.get("accuracy") for s in steps])
    left.plot(numbers, [100 * v for v in overall], label="all", color="black", linewidth=2)
    open_ = [float(s.get("abstained") or 0.0) for s in steps]
    if any(open_):
        low = [(s.get("accuracy") or 0.0) * (1 - a) for s, a in zip(steps, open_, strict=True)]
        band = [_smooth(low), _smooth([v + a for v, a in zip(low, open_, strict=True)])]
        edges = [[100 * v for v in edge] for edge in band]
        left.fill_between(numbers, *edges, color="black", alpha=0.15, label="left open by the judge")
    checked = [(v["step"], 100 * v["overall"]) for v in validations if v.get("overall") is not None]
    if checked:
        left.plot(*zip(*checked, strict=True), "kD--", markersize=5, linewidth=0.8, label="validation")
    if numbers:
        left.plot([numbers[0], numbers[-1]], [100 * before, 100 * after], "k*", markersize=11, label="held out")
    left.set(xlabel="step", ylabel="percent right", title="Training rollouts (smoothed)", ylim=(0, 100))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, fontsize="small", frameon=False)
    left.xaxis.get_major_locator().set_params(integer=True)
    right.plot(numbers, _smooth([s.get("reward_mean") for s in steps]), color="black", label="reward")
    right.set(xlabel="step", ylabel="mean reward", title="Reward and valid generation rate (smoothed)")
    rate = right.twinx()
    rate.plot(
        numbers,
        [100 * v for v in _smooth([s.get("valid_rate") for s in steps])],
        color="#7f7f7f",
        label="valid",
    )
    rate.set(ylabel="valid, percent", ylim=(0, 102))
    lines = [*right.get_lines(), *rate.get_lines()]
    names = [str(line.get_label()) for line in lines]
    right.legend(
        lines, names, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize="small", frameon=False
    )
    right.xaxis.get_major_locator().set_params(integer=True)
    _write(figure, path, dpi=110)


def confusion_chart(counts: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Stacked bars in shares of the pairs; ``counts`` are ``Counts.as_json``."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.5 * len(counts)))
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
    """Each side's lines by dataset, how often its problems come, and how long they are; ``sides`` are those of
    ``data.overview``.
    """
    pyplot = _pyplot()
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(len(sides), 2, figsize=(11, 2.6 * len(sides) + 0.6), squeeze=False)
    for (side, sets), (left, right) in zip(sides.items(), axes, strict=True):
        sets = {name.replace("$", r"\$"): facts for name, facts in sets.items()}  # no mathematics
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
    """Percent right against each kind of cost that ``fronts`` has (``tokens``, ``cost``): a number for each row, bounds
    hollow, and the Pareto front as a line.
    """
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(
        1, len(fronts), figsize=(5.2 * len(fronts) + 3.4, 5), squeeze=False, constrained_layout=True
    )
    scored = {number: one for number, one in enumerate(compared, 1) if one.row.overall.n}
    for axes, (kind, best) in zip(panels[0], fronts.items(), strict=True):
        widest = max((getattr(one.row, kind) for one in scored.values()), default=0) or 1.0
        there: dict[tuple[int, int], list[int]] = {}  # numbers whose marks lie on each other
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
    """The figure as the kind of picture that the name ends in, whole or not at all."""
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix.lower().removeprefix("."), **options)
    finally:
        _pyplot().close(figure)
    write_whole(path, drawn.getvalue())
