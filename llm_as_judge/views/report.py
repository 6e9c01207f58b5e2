"""A run's report as one self-contained HTML file, without scripts.

Texts of models and datasets are escaped, and characters that would hide or reorder text are made visible. The extra
``report`` installs Jinja and Pygments.
"""

import json
import re
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.analysis import Story
from llm_as_judge.evaluation.intervals import mean_known
from llm_as_judge.files import cut
from llm_as_judge.types import DOMAINS, in_order
from llm_as_judge.views.charts import plots
from llm_as_judge.views.terminal import figure, judge_line, recorded, shape_cells
from llm_as_judge.views.watch import line_cells
from llm_as_judge.workflow.lint.codes import meaning

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
# Control characters, changes of direction, and characters without width.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def report_page(story: Story) -> str:
    """Render the whole page; the story must have a step."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"text": shown, "code": code, "meaning": meaning, "recorded": recorded, "figure": figure}
    template = environment.from_string(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    results = story.results
    ratios = story.log.run.settings.get("data", {}).get("domain_ratios", dict.fromkeys(DOMAINS, 1.0))
    domains = in_order(domain for domain, ratio in ratios.items() if ratio)
    measured = {"untrained policy": results.get("before"), "trained policy": results.get("after")}
    measured |= results.get("baselines") or {}
    return template.render(
        log=story.log,
        began=datetime.fromtimestamp(story.log.steps[0].time, timezone.utc),
        lasted=timedelta(seconds=round(story.log.seconds)),
        total=story.analysis.total,
        tiles=_tiles(story),
        domains=domains,
        heldout={name: row for name, row in measured.items() if row},
        shapes=list(shape_cells(results.get("workflows") or {}, results.get("learned") or {}, domains)),
        judge=judge_line(results.get("judge") or {}),
        plots=list(plots(story)),
        tables={name: list(lines.items())[:_ROWS] for name, lines in story.analysis.by.items() if lines},
        cells=line_cells,
        rollouts={"Best rollouts": story.best, "Worst rollouts": story.worst},
        settings=shown(json.dumps(story.log.run.settings, indent=2, ensure_ascii=False, default=str), 20_000),
        colours=Markup(HtmlFormatter(style="default").get_style_defs(".code")),
    )


def shown(value: Any, longest: int = _LONGEST) -> str:
    """Shorten ``value``, with invisible characters named."""
    whole = cut(str(value), longest).replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", whole)


def code(source: str) -> Markup:
    return Markup(highlight(shown(source), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


def _tiles(story: Story) -> list[tuple[str, str, str]]:
    """Return name, value and note: means over the last steps, with those over the first ones."""
    tiles = []
    for name, kind in {"reward": "reward_mean", "accuracy": "accuracy", "valid workflows": "valid_rate"}.items():
        values = [getattr(step, kind) for step in story.log.steps]
        first, last = (figure(mean_known(part), ".2f") for part in (values[:_LAST], values[-_LAST:]))
        tiles.append((f"{name}, last {_LAST} steps", last, f"first {_LAST}: {first}"))
    return tiles
