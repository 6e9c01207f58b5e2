"""``llm-as-judge report``: one HTML file about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import write_whole


@cli.grouped
def report(
    options: cli.SettingsOptions,
    run: cli.RunName = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Output file (default: next to the run's log).")
    ] = None,
) -> None:
    """Write one HTML file with a run's curves, workflow shapes, costs, best and worst rollouts."""
    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.evaluation.analysis import read_story
    from llm_as_judge.views.report import report_page  # needs an extra

    config = options.load()
    log = find_log(config, run, newest=True)
    story = read_story(log, config.output.results_dir / "training" / log.parent.name / f"{log.stem}.json")
    if not story.steps:
        raise ConfigError(f"{log}: no finished step yet; follow the run with llm-as-judge monitor")
    file = output or log.with_suffix(".html")
    write_whole(file, report_page(story))
    cli.echo(f"report  {file}")
