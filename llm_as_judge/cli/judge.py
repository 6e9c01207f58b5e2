"""``llm-as-judge judge calibrate``: how far the configured judge agrees with labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.cli.options import DEFAULT_CONFIG, AsJson, ConfigPath, Overrides, make_console, print_json

app = typer.Typer(help="The judge itself.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _judge() -> None: ...


@app.command()
def calibrate(
    pairs: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSONL of gold, candidate, equivalent.")],
    mode: Annotated[str | None, typer.Option("--mode", help="rules, llm or hybrid; default: as configured.")] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    picture: Annotated[Path | None, typer.Option("--png", help="Where the confusion by kind is drawn.")] = None,
    attacks: Annotated[bool, typer.Option("--attacks/--no-attacks", help="Also judge hostile rewritings.")] = True,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many pairs.")] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print agreement, kappa, false accepts, false rejects and abstentions, plain and under attack."""
    from llm_as_judge.config.loading import load_config

    settings = load_config(config, overrides or [], extra={"judge.mode": mode})

    import asyncio

    from llm_as_judge.runs.calibrate import run_calibration
    from llm_as_judge.views.terminal import calibration_table

    console = make_console(as_json)
    result = asyncio.run(run_calibration(settings, pairs, attacks=attacks, limit=limit, picture=picture))
    console.print(calibration_table(result.counts))
    console.print(f"picture {result.picture}", highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(result.counts[0].line())
