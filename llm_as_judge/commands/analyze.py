"""``llm-as-judge analyze``: tables of a run's rollouts."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError


@cli.grouped
def analyze(
    options: cli.SettingsOptions,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run name, MODEL/NAME or log path (default: the configured run)."),
    ] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Sum up a run by domain, dataset, operator, shape, lint code and failure, and over time."""
    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.evaluation.analysis import analyze_log
    from llm_as_judge.views.watch import analysis_tables

    log = find_log(options.load(), run)
    found = analyze_log(log)
    if not found.total.rollouts:
        raise ConfigError(f"{log}: no rollouts yet; follow the run with llm-as-judge monitor")
    if as_json:
        cli.print_json(found.as_json())
        return
    console = cli.make_console(as_json)
    for part in analysis_tables(found):
        console.print(part, highlight=False)
