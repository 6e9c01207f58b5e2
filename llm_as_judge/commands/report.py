"""``llm-as-judge report``: one HTML file that tells of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands.options import DEFAULT_CONFIG, ConfigPath, ModelName, Overrides, RunName, load_settings


def report(
    run: RunName = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", dir_okay=False, help="Where to; by default beside the run's log."),
    ] = None,
) -> None:
    """Write one HTML file with a run's curves, workflow shapes, costs, best and worst rollouts."""
    settings = load_settings(config, overrides, model, None)

    from llm_as_judge.commands.report_run import report as write_report

    typer.echo(f"report  {write_report(settings, run, output)}")
