"""The plots of a run's report, each an HTML fragment that draws itself with the page's own copy of plotly.

The extra ``report`` installs plotly.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.story import ENDS, Story
from llm_as_judge.types import DOMAINS

try:
    from plotly import graph_objects
    from plotly.offline import get_plotlyjs
    from plotly.subplots import make_subplots
except ImportError as error:
    raise ConfigError(f"plotly is an extra: python -m pip install 'llm-as-judge[report]' ({error})") from error

COLOURS = {"math": "#3366cc", "code": "#2a9d5c", "qa": "#cc4433", "all": "#333333"}
_PALETTE = ("#3366cc", "#2a9d5c", "#cc4433", "#b8860b", "#7a4fbf", "#2b9eb3", "#888888", "#c2569b")
_SHAPES = 8  # of a domain
_LONGEST = 60  # characters of a shape in a plot
_WINDOW = 10  # steps that a line is a mean over


def library() -> str:
    """plotly itself, four megabytes of JavaScript."""
    return str(get_plotlyjs())


def plots(story: Story) -> Iterator[tuple[str, str, str]]:
    """Heading, note and fragment of each plot that there are figures for."""
    smooth = f"Thin: every step. Thick: mean of {_WINDOW} steps."
    yield "Reward", smooth, _reward(story)
    yield "Share right", f"By domain, of scored rollouts. {_held_out_note(story)}", _accuracy(story)
    yield "Valid workflows and contrast", "Groups without contrast teach nothing.", _rates(story)
    yield "KL and entropy", "KL to the reference policy and entropy of the policy, per token.", _divergence(story)
    if any(step.get("terms") for step in story.steps):
        yield "Terms of the reward", "Means over scored rollouts, each on its own scale.", _terms(story)
    yield "Cost", "Cost of the executor so far, and its tokens for a workflow.", _cost(story)
    share = f"Share of a domain's rollouts in the first and last {ENDS:.0%} of the steps."
    yield "Shapes of workflows, before and after", share, _shapes(story)
    yield "Time", "Seconds of a step by phase.", _seconds(story)


def _held_out_note(story: Story) -> str:
    return "Diamonds: held-out problems before and after." if story.results else ""


def _reward(story: Story) -> str:
    figure = _figure()
    _line(figure, story, "reward", [step.get("reward_mean") for step in story.steps], COLOURS["math"])
    return _fragment(figure, "reward")


def _accuracy(story: Story) -> str:
    figure = _figure(percent=True)
    _line(figure, story, "all", [step.get("accuracy") for step in story.steps], COLOURS["all"])
    for domain in DOMAINS:
        values = [(step.get("domain_accuracy") or {}).get(domain) for step in story.steps]
        if any(value is not None for value in values):
            _line(figure, story, domain, values, COLOURS[domain])
    if story.validations:
        marks = {"symbol": "x", "size": 9, "color": COLOURS["all"]}
        when = [event["step"] for event in story.validations]
        right = [event.get("overall") for event in story.validations]
        figure.add_scatter(x=when, y=right, mode="markers", name="validation", marker=marks)
    if story.results:
        for name in ("all", *DOMAINS):
            key = "overall" if name == "all" else name
            measured = [(story.results.get(moment) or {}).get(key) for moment in ("before", "after")]
            ends = [story.steps[0]["step"] - 1, story.steps[-1]["step"]]
            marks = {"symbol": "diamond", "size": 10, "color": COLOURS[name]}
            rest = {"name": f"held out, {name}", "marker": marks, "showlegend": False}
            figure.add_scatter(x=ends, y=measured, mode="markers", **rest)
    return _fragment(figure, "share right")


def _rates(story: Story) -> str:
    figure = _figure(percent=True)
    _line(figure, story, "valid", [step.get("valid_rate") for step in story.steps], _PALETTE[1])
    skipped = [_share(step.get("skipped_groups"), step.get("groups")) for step in story.steps]
    _line(figure, story, "groups without contrast", skipped, _PALETTE[2])
    cut = [step.get("truncated") for step in story.steps]
    _line(figure, story, "cut off at the length limit", cut, _PALETTE[6])
    return _fragment(figure, "share")


def _divergence(story: Story) -> str:
    figure = _figure(make_subplots(rows=1, cols=2, subplot_titles=("KL", "entropy")))
    for column, name in enumerate(("kl", "entropy"), 1):
        values = [step.get(name) for step in story.steps]
        _line(figure, story, name, values, _PALETTE[column - 1], {"row": 1, "col": column}, legend=False)
    return _fragment(figure, "")


def _terms(story: Story) -> str:
    figure = _figure()
    names = dict.fromkeys(name for step in story.steps for name in step.get("terms") or ())
    for place, name in enumerate(names):
        values = [(step.get("terms") or {}).get(name) for step in story.steps]
        _line(figure, story, name, values, _PALETTE[place % len(_PALETTE)])
    return _fragment(figure, "mean")


def _shapes(story: Story) -> str:
    domains = [domain for domain in DOMAINS if domain in story.before or domain in story.after]
    figure = _figure(make_subplots(rows=len(domains), cols=1, subplot_titles=domains, vertical_spacing=0.09))
    rows = 0
    for row, domain in enumerate(domains, 1):
        before, after = story.before.get(domain, Counter()), story.after.get(domain, Counter())
        counts = {name: max(_portion(before, name), _portion(after, name)) for name in {*before, *after}}
        names = sorted(counts, key=lambda name: (counts[name], name))[-_SHAPES:]
        rows += len(names)
        for part, label, colour in ((before, "first steps", "#b9c4d6"), (after, "last steps", COLOURS[domain])):
            figure.add_bar(
                x=[_portion(part, name) for name in names], y=[_cut(name) for name in names], orientation="h",
                name=label, marker={"color": colour}, legendgroup=label, showlegend=row == 1, row=row, col=1,
            )  # fmt: skip
        figure.update_xaxes(tickformat=".0%", range=[0, 1], row=row, col=1)
    legend = {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"}
    margin = {"l": 260, "r": 20, "t": 60, "b": 30}
    figure.update_layout(barmode="group", height=90 + 40 * len(domains) + 24 * rows, margin=margin, legend=legend)
    return _fragment(figure, None)


def _cost(story: Story) -> str:
    figure = _figure(make_subplots(rows=1, cols=2, subplot_titles=("cost so far", "executor tokens a workflow")))
    x = [step["step"] for step in story.steps]
    line = {"color": _PALETTE[4]}
    figure.add_scatter(x=x, y=story.costs, name="cost", line=line, showlegend=False, row=1, col=1)
    values = [step.get("executor_tokens") for step in story.steps]
    _line(figure, story, "tokens", values, _PALETTE[5], {"row": 1, "col": 2}, legend=False)
    figure.update_yaxes(rangemode="tozero")
    return _fragment(figure, "")


def _seconds(story: Story) -> str:
    figure = _figure()
    x = [step["step"] for step in story.steps]
    phases = dict.fromkeys(name for step in story.steps for name in step.get("seconds") or ())
    for place, phase in enumerate(phases):
        y = [(step.get("seconds") or {}).get(phase, 0.0) for step in story.steps]
        line = {"width": 0.5, "color": _PALETTE[place % len(_PALETTE)]}
        figure.add_scatter(x=x, y=y, name=_cut(phase), stackgroup="phases", line=line)
    return _fragment(figure, "seconds")


def _figure(figure: Any = None, *, percent: bool = False) -> Any:
    figure = figure or graph_objects.Figure()
    figure.update_layout(
        template="plotly_white", height=300, margin={"l": 60, "r": 20, "t": 30, "b": 40},
        legend={"orientation": "h", "y": -0.18}, font={"family": "system-ui, sans-serif", "size": 12},
        hovermode="x unified",
    )  # fmt: skip
    if percent:
        figure.update_yaxes(tickformat=".0%", range=[-0.02, 1.02])
    return figure


def _line(
    figure: Any, story: Story, name: str, values: Sequence[Any], colour: str,
    place: Mapping[str, int] | None = None, *, legend: bool = True,
) -> None:  # fmt: skip
    """The values of every step, thin, and their running mean."""
    x = [step["step"] for step in story.steps]
    rest = {"legendgroup": name, "mode": "lines", **(place or {})}
    thin, thick = {"color": colour, "width": 1}, {"color": colour, "width": 2.5}
    figure.add_scatter(x=x, y=values, line=thin, opacity=0.35, showlegend=False, hoverinfo="skip", **rest)
    figure.add_scatter(x=x, y=_running(values), line=thick, name=_cut(name), showlegend=legend, **rest)


def _running(values: Sequence[float | None]) -> list[float | None]:
    """Means over the last steps, of those that have a value."""
    parts = [[v for v in values[max(0, i - _WINDOW + 1) : i + 1] if v is not None] for i in range(len(values))]
    return [sum(part) / len(part) if part else None for part in parts]


def _fragment(figure: Any, unit: str | None) -> str:
    if unit is not None:
        figure.update_xaxes(title={"text": "step", "standoff": 4})
        figure.update_yaxes(title={"text": unit})
    config = {"displaylogo": False, "responsive": True, "plotlyServerURL": ""}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=config))


def _cut(name: str) -> str:
    """A name as plotly shows it: what looks like a tag stays text."""
    return html.escape(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}...", quote=False)


def _portion(counts: Mapping[str, int], name: str) -> float:
    total = sum(counts.values())
    return counts.get(name, 0) / total if total else 0.0


def _share(part: Any, whole: Any) -> float | None:
    return part / whole if whole and part is not None else None
