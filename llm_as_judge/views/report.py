"""A run's report as one HTML file that needs nothing else: no network, no other file.

What models and data sets wrote is escaped and shown as text, with characters made visible that would hide or turn it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from llm_as_judge.evaluation.analysis import Line
from llm_as_judge.evaluation.story import Shown, Story
from llm_as_judge.views.plots import library, plots
from llm_as_judge.views.watch import figure, percent
from llm_as_judge.workflow.lint.codes import CODES

_LONGEST = 4_000  # characters of a text
_ROWS = 15  # of a table
_LAST = 10  # steps that a tile is a mean over
# Controls, what turns the reading direction, and what takes no room.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def report_page(story: Story) -> str:
    """The whole page; a story of no step is the caller's mistake."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"text": text, "code": code}
    template = environment.from_string(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    formatter = HtmlFormatter(style="default")
    return template.render(
        title=text(story.log.stem),
        facts=_facts(story),
        tiles=_tiles(story),
        plots=[(heading, note, Markup(fragment)) for heading, note, fragment in plots(story)],
        tables=[(dimension, _rows(lines)) for dimension, lines in story.analysis.by.items() if lines],
        rollouts=[("Best rollouts", _rollouts(story.best)), ("Worst rollouts", _rollouts(story.worst))],
        settings=text(json.dumps(story.settings, indent=2, ensure_ascii=False, default=str), 20_000),
        colours=Markup(formatter.get_style_defs(".code")),
        plotly=Markup(library().replace("</script", "<\\/script")),
    )


def text(value: Any, longest: int = _LONGEST) -> str:
    """``value`` as a reader may see it: shortened, and with unseen characters named."""
    whole = str(value)
    if len(whole) > longest:
        half = longest // 2
        whole = f"{whole[:half]}\n... {len(whole) - 2 * half:,} characters left out ...\n{whole[-half:]}"
    whole = whole.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", whole)


def code(source: str) -> Markup:
    """Python in colours."""
    return Markup(highlight(text(source), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


def _facts(story: Story) -> list[tuple[str, str]]:
    first, last = story.steps[0], story.steps[-1]
    total = (story.settings.get("training") or {}).get("max_steps", "?")
    started = datetime.fromtimestamp(first["time"], timezone.utc)
    took = timedelta(seconds=round(last["time"] - first["time"]))
    model = (story.settings.get("model") or {}).get("model_name", "")
    executor = (story.settings.get("executor") or {}).get("model", "")
    facts = {"run": story.run, "policy": model, "executor": executor, "steps": f"{last['step']} of {total}"}
    facts |= {"first step": f"{started:%Y-%m-%d %H:%M} UTC", "lasted": str(took)}
    return [(name, text(value)) for name, value in facts.items() if value]


def _tiles(story: Story) -> list[tuple[str, str, str]]:
    """Name, value and what it was at the beginning."""
    first, last, total = story.steps[:_LAST], story.steps[-_LAST:], story.analysis.total
    tiles = []
    if before := story.results.get("before"):
        after, gain = story.results.get("after") or {}, story.results.get("gain") or {}
        low, high = gain.get("interval") or (math.nan, math.nan)
        told = f"before {percent(_known(before.get('overall')))} %, gain {100 * low:+.0f} to {100 * high:+.0f} points"
        tiles.append(("held out, right", f"{percent(_known(after.get('overall')))} %", told))
    for name, key, form in (("reward", "reward_mean", ".2f"), ("right", "accuracy", "%"), ("valid", "valid_rate", "%")):
        was, now = (_mean([step.get(key) for step in part]) for part in (first, last))
        shown = [f"{percent(v)} %" if form == "%" else figure(v, form) for v in (was, now)]
        tiles.append((f"{name}, last {len(last)} steps", shown[1], f"first {len(first)}: {shown[0]}"))
    spent = f"{total.cost:.4g}" if total.cost else figure(total.executor_tokens, ",.0f")
    label = "executor's cost" if total.cost else "executor tokens a rollout"
    tiles.append((label, spent, f"{total.rollouts:,} rollouts, {total.unscored:,} unscored"))
    return tiles


def _rows(lines: Mapping[str, Line]) -> list[tuple[str, ...]]:
    """What the table of a dimension shows, the most frequent first."""
    return [
        (
            text(f"{key} {CODES[key][0]}" if key in CODES else key, 200), f"{line.rollouts:,}", percent(line.accuracy),
            percent(line.valid_rate), figure(line.reward, ".2f"), figure(line.executor_tokens, ",.0f"),
        )
        for key, line in list(lines.items())[:_ROWS]
    ]  # fmt: skip


def _rollouts(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    found = []
    for one in shown:
        rollout, prompt = one.rollout, one.prompt
        found.append(
            {
                "rollout": rollout,
                "source": rollout.source,
                "question": (prompt.question or prompt.user) if prompt else rollout.problem,
                "verdict": {True: "right", False: "wrong", None: "unscored"}[rollout.correct],
                "lint": [f"{name} {CODES[name][0]}" if name in CODES else name for name in rollout.lint],
                "expected": "\n".join(rollout.reference),
                "answer": "" if rollout.answer is None else rollout.answer,
            }
        )
    return found


def _known(value: Any) -> float:
    return math.nan if value is None else float(value)


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan
