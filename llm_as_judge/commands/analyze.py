"""``llm-as-judge analyze``: a run's rollouts by what tells them apart, and over time."""

from __future__ import annotations

from typing import Annotated

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


def analyze(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Its name, MODEL/NAME or its log; by default the configured.")
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Sum up a run by domain, dataset, operator, shape, lint code and failure, and over time."""
    settings = load_settings(config, overrides, model, None)

    from llm_as_judge.commands.watch_run import analyze as run_analysis

    found = run_analysis(settings, run)
    if as_json:
        print_json(found.as_json())
        return
    from llm_as_judge.views.watch import analysis_tables

    console = make_console(as_json)
    for part in analysis_tables(found):
        console.print(part, highlight=False)
