"""``llm-as-judge analyze``: tables of a run's rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    print_json,
)

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.analysis import Analysis


def analyze_run(config: Config, run: str | None = None) -> Analysis:
    """Raises ``ConfigError`` if there is no such run or no rollout in its log."""
    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.evaluation.analysis import analyze_log

    log = find_log(config, run)
    found = analyze_log(log)
    if not found.total.rollouts:
        raise ConfigError(f"{log}: no rollouts yet; follow the run with llm-as-judge monitor")
    return found


def analyze(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run name, MODEL/NAME or log path (default: the configured run)."),
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Sum up a run by domain, dataset, operator, shape, lint code and failure, and over time."""
    found = analyze_run(load_settings(config, overrides, model, None), run)
    if as_json:
        print_json(found.as_json())
        return
    from llm_as_judge.views.watch import analysis_tables

    console = make_console(as_json)
    for part in analysis_tables(found):
        console.print(part, highlight=False)
