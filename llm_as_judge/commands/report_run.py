"""``llm-as-judge report``: one HTML file that tells of a run."""

from __future__ import annotations

from pathlib import Path

from llm_as_judge.commands.watch_run import find_log
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.story import read_story
from llm_as_judge.files import write_whole


def report(config: Config, run: str | None = None, output: Path | None = None) -> Path:
    """Writes the report of ``run``, by default of the one that wrote last, beside its log or to ``output``.

    Raises ``ConfigError`` where there is no such run, or no step in its log; ``OSError`` where it cannot be written.
    """
    from llm_as_judge.views.report import report_page  # needs an extra

    log = find_log(config, run, newest=True)
    story = read_story(log, config.output.results_dir / "training" / log.parent.name / f"{log.stem}.json")
    if not story.steps:
        raise ConfigError(f"{log} tells of no step yet; watch the run with llm-as-judge monitor")
    file = output or log.with_suffix(".html")
    write_whole(file, report_page(story))
    return file
