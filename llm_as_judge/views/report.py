"""A run's report as one self-contained HTML file, without scripts.

Texts of models and datasets are escaped, and characters that would hide or reorder text are made visible. The extra
``report`` installs Jinja and Pygments.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.analysis import Line, Shown, Story
from llm_as_judge.evaluation.metrics import mean_known
from llm_as_judge.events import StepReport
from llm_as_judge.types import DOMAINS
from llm_as_judge.views.charts import plots
from llm_as_judge.views.watch import figure, percent
from llm_as_judge.workflow.lint.codes import CODES

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer
except ImportError as error:
    raise ConfigError(f"the report needs an extra: python -m pip install 'llm-as-judge[report]' ({error})") from error

_LONGEST = 4_000  # characters of a text
_ROWS = 15  # of a table
_LAST = 10  # steps that a tile is averaged over
_SHARES = ("overall", *DOMAINS, "valid_rate")
# Control characters, changes of direction, and characters without width.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def report_page(story: Story) -> str:
    """The whole page; the story must have a step."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"text": text, "code": code}
    template = environment.from_string(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    formatter = HtmlFormatter(style="default")
    return template.render(
        title=text(story.log.stem),
        facts=_facts(story),
        tiles=_tiles(story),
        heldout=_heldout(story.results),
        plans=_plans(story.results),
        judge=_judge(story.results.get("judge") or {}),
        plots=list(plots(story)),
        tables=[(dimension, _rows(lines)) for dimension, lines in story.analysis.by.items() if lines],
        rollouts=[("Best rollouts", _rollouts(story.best)), ("Worst rollouts", _rollouts(story.worst))],
        settings=text(json.dumps(story.run.settings, indent=2, ensure_ascii=False, default=str), 20_000),
        colours=Markup(formatter.get_style_defs(".code")),
    )


def text(value: Any, longest: int = _LONGEST) -> str:
    """``value`` shortened, with invisible characters named."""
    whole = str(value)
    if len(whole) > longest:
        half = longest // 2
        whole = f"{whole[:half]}\n... {len(whole) - 2 * half:,} characters left out ...\n{whole[-half:]}"
    whole = whole.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", whole)


def code(source: str) -> Markup:
    return Markup(highlight(text(source), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


def _facts(story: Story) -> list[tuple[str, str]]:
    run, first, last = story.run, story.steps[0], story.steps[-1]
    started = datetime.fromtimestamp(first.time, timezone.utc)
    facts = {
        "run": run.id,
        "policy": run.setting("model", "model_name"),
        "executor": run.setting("executor", "model"),
        "steps": f"{last.step} of {run.setting('training', 'max_steps') or '?'}",
        "first step": f"{started:%Y-%m-%d %H:%M} UTC",
        "duration": str(timedelta(seconds=round(last.time - first.time))),
    }
    return [(name, text(value)) for name, value in facts.items() if value]


def _tiles(story: Story) -> list[tuple[str, str, str]]:
    """Name, value, and the value at the beginning if the run is long enough for a beginning and an end."""
    last, total = story.steps[-_LAST:], story.analysis.total
    first = story.steps[:_LAST] if len(story.steps) >= 2 * _LAST else []
    tiles = []
    if before := story.results.get("before"):
        after, gain = story.results.get("after") or {}, story.results.get("gain") or {}
        low, high = gain.get("interval") or (math.nan, math.nan)
        was = f"before {_percent(before.get('overall'))}, gain {100 * low:+.0f} to {100 * high:+.0f} points"
        tiles.append(("held-out accuracy", _percent(after.get("overall")), was))
    figures: Mapping[str, tuple[Callable[[StepReport], float], Callable[[float], str]]] = {
        "reward": (lambda step: step.reward_mean, lambda value: figure(value, ".2f")),
        "accuracy": (lambda step: step.accuracy, _percent),
        "valid": (lambda step: step.valid_rate, _percent),
    }
    for name, (value, shown) in figures.items():
        was, now = (shown(mean_known([value(step) for step in part])) for part in (first, last))
        name = f"{name}, last {len(last)} steps" if first else f"{name}, all {len(story.steps)} steps"
        tiles.append(
            (
                name,
                now if first else shown(mean_known(list(map(value, story.steps)))),
                f"first {len(first)}: {was}" if first else "",
            )
        )
    spent = f"{total.cost:.4g}" if total.cost else figure(total.executor_tokens, ",.0f")
    label = "cost of the executor" if total.cost else "executor tokens per rollout"
    tiles.append((label, spent, f"{total.rollouts:,} rollouts, {total.unscored:,} unscored"))
    return tiles


def _heldout(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the held-out evaluations: name, accuracies, valid share, executor tokens per problem."""
    named = {"untrained policy": results.get("before"), "trained policy": results.get("after")}
    named |= results.get("baselines") or {}
    return [
        (
            text(name, 200),
            *(_interval(row, key) for key in _SHARES),
            figure(_number(row.get("executor_tokens")), ",.0f"),
        )
        for name, row in named.items()
        if row
    ]


def _interval(row: Mapping[str, Any], name: str) -> str:
    value, bounds = row.get(name), (row.get("interval") or {}).get(name)
    if value is None:
        return "-"
    low, high = (percent(_number(bound)) for bound in bounds or (None, None))
    return f"{100 * value:.1f} [{low}, {high}]"


def _plans(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Accuracy of each workflow alone, by domain; a star marks the one that the policy writes most."""
    learned = results.get("learned") or {}
    return [
        (text(plan, 200), *(percent(_number(cells.get(d))) + ("*" if learned.get(d) == plan else "") for d in DOMAINS))
        for plan, cells in (results.get("workflows") or {}).items()
    ]


def _judge(judge: Mapping[str, Any]) -> str:
    if judge.get("agreement") is None:
        return ""
    return (
        f"The LLM judge alone agrees with the reference on {100 * judge['agreement']:.1f} % of {judge['pairs']} "
        f"answers: {judge['false_accepts']} false accepts, {judge['false_rejects']} false rejects, "
        f"{judge['abstained']} abstained."
    )


def _rows(lines: Mapping[str, Line]) -> list[tuple[str, ...]]:
    """Rows of a dimension's table, the most frequent first."""
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


def _percent(share: Any) -> str:
    return f"{percent(_number(share))} %"


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
