"""``llm-as-judge judge calibrate``: how far the configured judge agrees with labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    picture,
    print_json,
)

app = typer.Typer(help="Measure the judge.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _judge() -> None: ...


@app.command()
def calibrate(
    pairs: Annotated[
        Path,
        typer.Argument(metavar="PAIRS", exists=True, dir_okay=False, help="JSONL with gold, candidate and equivalent."),
    ],
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="rules, llm or hybrid; by default as configured.")
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", callback=picture, help="Picture to draw of the confusion by kind."),
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="Judge hostile rewritings of the candidates too.")
    ] = True,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Judge only the first N pairs.")
    ] = None,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print agreement, kappa, false accepts, false rejects and abstentions, plain and under attack."""
    settings = load_settings(config, overrides, model, device, **{"judge.mode": mode})

    import asyncio

    from llm_as_judge.commands.calibrate_run import run_calibration
    from llm_as_judge.views.terminal import calibration_table

    console = make_console(as_json)
    result = asyncio.run(run_calibration(settings, pairs, attacks=attacks, limit=limit, picture=png))
    console.print(calibration_table(result.counts))
    console.print(f"picture {result.picture}", highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(result.counts[0].line())
