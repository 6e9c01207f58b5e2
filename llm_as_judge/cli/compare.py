"""``llm-as-judge compare``: what the parts of the system are worth, each measured by taking it away."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.cli.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    print_json,
)


def compare(
    ablate: Annotated[
        str,
        typer.Option(
            "--ablate",
            metavar="PARTS",
            help="Parts to leave out, separated by commas: layer1,layer2,buffer,reward.TERM.",
        ),
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, metavar="N", help="Number of runs, each with a seed of its own, per part.")
    ] = 3,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Train with everything and without each part, and print what it was worth (accuracy, tokens)."""
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.evaluation.ablation import PARTS

    parts = list(dict.fromkeys(part.strip() for part in ablate.split(",") if part.strip()))
    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(f"--ablate {unknown[0]!r}: there are {', '.join(PARTS)}")
    settings = load_settings(config, overrides, model, device)

    import asyncio

    from llm_as_judge.runs.ablate import run_ablation
    from llm_as_judge.views.terminal import TerminalProgress

    console = make_console(as_json)
    with TerminalProgress(console) as progress:
        result = asyncio.run(run_ablation(settings, parts, seeds, progress=progress))
    console.print(f"figures {result.file}", highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(result.table)
