"""``llm-as-judge analyze``: tables of a run's rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.analysis import Analysis


def analyze_run(config: Config, run: str | None = None) -> Analysis:
    """Raises ``ConfigError`` if there is no such run or no rollout in its log."""
    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.evaluation.analysis import analyze_log

    log = find_log(config, run)
    found = analyze_log(log)
    if not found.total.rollouts:
        raise ConfigError(f"{log}: no rollouts yet; follow the run with llm-as-judge monitor")
    return found


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
    found = analyze_run(options.load(), run)
    if as_json:
        cli.print_json(found.as_json())
        return
    from llm_as_judge.views.watch import analysis_tables

    console = cli.make_console(as_json)
    for part in analysis_tables(found):
        console.print(part, highlight=False)
