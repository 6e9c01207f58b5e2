"""The plots of a run's report, as SVG drawn by matplotlib."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.evaluation.metrics import mean_known
from llm_as_judge.evaluation.story import ENDS, Story
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.views.charts import pyplot

COLOURS = {"math": "#3366cc", "code": "#2a9d5c", "qa": "#cc4433", "all": "#333333"}
_PALETTE = ("#3366cc", "#2a9d5c", "#cc4433", "#b8860b", "#7a4fbf", "#2b9eb3", "#888888", "#c2569b")
_SHAPES = 8  # of a domain
_LONGEST = 60  # characters of a name in a plot
_WINDOW = 10  # steps that a line is averaged over
_STYLE = {
    "svg.fonttype": "none", "text.parse_math": False, "font.size": 9, "font.family": "sans-serif",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#b8c0cc", "axes.labelcolor": "#5c6675",
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e8ebf0", "axes.axisbelow": True, "xtick.color": "#5c6675",
    "ytick.color": "#5c6675", "legend.frameon": False, "axes.titlesize": 9, "axes.titlecolor": "#1c2430",
    "axes.titlelocation": "left", "figure.constrained_layout.use": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plot:
    heading: str
    note: str
    image: str  # data URI
    wide: bool = False


def plots(story: Story) -> Iterator[Plot]:
    """Those for which the run has figures."""
    held_out = " Diamonds: held-out problems before and after." if story.results else ""
    smooth = f"Thin: every step. Thick: mean of {_WINDOW} steps."
    yield Plot("Reward", smooth, _image(story, _reward))
    yield Plot("Accuracy", f"By domain, of scored rollouts.{held_out}", _image(story, _accuracy))
    yield Plot("Valid workflows and contrast", "Groups without contrast give no gradient.", _image(story, _rates))
    note = "KL to the reference policy and entropy of the policy, per token."
    yield Plot("KL and entropy", note, _image(story, _divergence, columns=2))
    if any(step.terms for step in story.steps):
        yield Plot("Reward terms", "Means over scored rollouts, each on its own scale.", _image(story, _terms))
    note = "Cost of the executor so far, and its tokens per workflow."
    yield Plot("Cost", note, _image(story, _cost, columns=2))
    domains = [domain for domain in DOMAINS if domain in story.before or domain in story.after]
    if domains:
        rows = [min(_SHAPES, len({*story.before.get(d, ()), *story.after.get(d, ())})) for d in domains]
        note = f"Share of a domain's rollouts in the first (grey) and last {ENDS:.0%} of the steps."
        image = _image(story, _shapes, rows=len(domains), height=0.7 * len(domains) + 0.3 * sum(rows), ratios=rows)
        yield Plot("Workflow shapes, before and after", note, image, wide=True)
    yield Plot("Time", "Seconds of a step by phase.", _image(story, _seconds, width=11.6), wide=True)


def _image(
    story: Story,
    draw: Callable[[Story, Sequence[Any]], None],
    *,
    rows: int = 1,
    columns: int = 1,
    width: float = 5.6,
    height: float = 3.0,
    ratios: Sequence[int] | None = None,
) -> str:
    library = pyplot()
    with library.rc_context({**_STYLE, "svg.hashsalt": draw.__name__}):
        size = (11.6 if ratios else width, height)
        grid = {"height_ratios": [ratio + 1 for ratio in ratios]} if ratios else None
        figure, axes = library.subplots(rows, columns, figsize=size, squeeze=False, gridspec_kw=grid)
        try:
            draw(story, list(axes.flat))
            for axis in axes.flat if not ratios else ():
                axis.set_xlabel("step", loc="right")
                axis.xaxis.get_major_locator().set_params(integer=True)
            drawn = io.BytesIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None})
        finally:
            library.close(figure)
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}"


def _reward(story: Story, axes: Sequence[Any]) -> None:
    _line(axes[0], story, "reward", [step.reward_mean for step in story.steps], _PALETTE[0])


def _accuracy(story: Story, axes: Sequence[Any]) -> None:
    (axis,) = axes
    _line(axis, story, "all", [step.accuracy for step in story.steps], COLOURS["all"])
    for domain in DOMAINS:
        values = [step.domain_accuracy.get(domain, math.nan) for step in story.steps]
        if not all(map(math.isnan, values)):
            _line(axis, story, domain, values, COLOURS[domain])
    if story.evals:
        right = [event.scores.get("overall", math.nan) for event in story.evals]
        axis.plot([event.step for event in story.evals], right, "x", color=COLOURS["all"], label="validation")
    ends = [story.steps[0].step - 1, story.steps[-1].step]
    for name in ("all", *DOMAINS) if story.results else ():
        key = "overall" if name == "all" else name
        values = [_number((story.results.get(moment) or {}).get(key)) for moment in ("before", "after")]
        axis.plot(ends, values, "D", color=COLOURS[name], markersize=6, markeredgecolor="white")
    _percent(axis)
    _legend(axis)


def _rates(story: Story, axes: Sequence[Any]) -> None:
    (axis,) = axes
    _line(axis, story, "valid", [step.valid_rate for step in story.steps], _PALETTE[1])
    skipped = [step.skipped_groups / step.groups if step.groups else math.nan for step in story.steps]
    _line(axis, story, "groups without contrast", skipped, _PALETTE[2])
    _line(axis, story, "cut off at the length limit", [step.truncated for step in story.steps], _PALETTE[6])
    _percent(axis)
    _legend(axis)


def _divergence(story: Story, axes: Sequence[Any]) -> None:
    for axis, name, title, colour in zip(axes, ("kl", "entropy"), ("KL", "entropy"), _PALETTE, strict=False):
        _line(axis, story, name, [getattr(step, name) for step in story.steps], colour)
        axis.set_title(title)


def _terms(story: Story, axes: Sequence[Any]) -> None:
    names = dict.fromkeys(name for step in story.steps for name in step.terms)
    for place, name in enumerate(names):
        values = [step.terms.get(name, math.nan) for step in story.steps]
        _line(axes[0], story, name, values, _PALETTE[place % len(_PALETTE)])
    _legend(axes[0])


def _cost(story: Story, axes: Sequence[Any]) -> None:
    axes[0].plot([step.step for step in story.steps], story.costs, color=_PALETTE[4], linewidth=2)
    axes[0].set_title("cost so far")
    _line(axes[1], story, "tokens", [step.executor_tokens for step in story.steps], _PALETTE[5])
    axes[1].set_title("executor tokens per workflow")
    for axis in axes:
        axis.set_ylim(bottom=0)


def _shapes(story: Story, axes: Sequence[Any]) -> None:
    domains: list[Domain] = [domain for domain in DOMAINS if domain in story.before or domain in story.after]
    for axis, domain in zip(axes, domains, strict=True):
        before, after = story.before.get(domain, Counter()), story.after.get(domain, Counter())
        most = {name: max(_portion(before, name), _portion(after, name)) for name in {*before, *after}}
        names = sorted(most, key=lambda name: (most[name], name))[-_SHAPES:]
        places = range(len(names))
        for counts, shift, colour in ((before, 0.2, "#b9c4d6"), (after, -0.2, COLOURS[domain])):
            axis.barh([i + shift for i in places], [_portion(counts, name) for name in names], 0.38, color=colour)
        axis.set_yticks(list(places), [_cut(name) for name in names])
        axis.tick_params(axis="y", length=0)
        axis.grid(False)
        axis.set(title=domain, xlim=(0, 1))
        axis.xaxis.set_major_formatter(lambda value, place: f"{value:.0%}")


def _seconds(story: Story, axes: Sequence[Any]) -> None:
    phases = dict.fromkeys(name for step in story.steps for name in step.seconds)
    steps = [step.step for step in story.steps]
    values = [[step.seconds.get(phase, 0.0) for step in story.steps] for phase in phases]
    if values:
        colours = [_PALETTE[i % len(_PALETTE)] for i in range(len(values))]
        axes[0].stackplot(steps, values, labels=[_cut(phase) for phase in phases], colors=colours, alpha=0.85)
        _legend(axes[0])


def _line(axis: Any, story: Story, name: str, values: Sequence[float], colour: str) -> None:
    """The values of every step, thin, and their running mean."""
    steps = [step.step for step in story.steps]
    axis.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
    marker = "o" if len(steps) == 1 else None
    axis.plot(steps, running(values), color=colour, linewidth=2, marker=marker, label=_cut(name))


def running(values: Sequence[float]) -> list[float]:
    """Means over the last steps, without NaN."""
    return [mean_known(values[max(0, i - _WINDOW + 1) : i + 1]) for i in range(len(values))]


def _legend(axis: Any) -> None:
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, fontsize=8, columnspacing=1.2)


def _percent(axis: Any) -> None:
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(lambda value, place: f"{value:.0%}")


def _cut(name: str) -> str:
    name = "".join(c if c.isprintable() else "?" for c in name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _portion(counts: Mapping[str, int], name: str) -> float:
    total = sum(counts.values())
    return counts.get(name, 0) / total if total else 0.0


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
