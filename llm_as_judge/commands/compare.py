"""``llm-as-judge compare``: the policy beside other methods; what the parts of the system are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    Untrained,
    choose_checkpoint,
    load_settings,
    make_console,
    names_in,
    policy_name,
    print_json,
)

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config


def compare(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            exists=True,
            dir_okay=True,
            metavar="FILE",
            help="File or folder of problems; by default the configured ones.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Compare on N problems only.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            min=1,
            metavar="N",
            help="Executor tokens for the search for the best single workflow; by default as many as the policy's "
            "training took.",
        ),
    ] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(
            "--ablate",
            metavar="PART,...",
            help="Instead train without each of these parts: layer1, layer2, buffer, reward.TERM.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=1, metavar="N", help="With --ablate: number of runs, each with a seed of its own, per part."
        ),
    ] = 3,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compare the policy with other methods on the same problems; with --ablate, tell what each part is worth."""
    from llm_as_judge.errors import ConfigError

    if ablate is not None:
        given = {"--checkpoint": checkpoint, "--untrained": untrained, "--data": data, "--limit": limit}
        if wrong := [name for name, value in {**given, "--tokens": tokens}.items() if value]:
            raise ConfigError(f"--ablate trains policies of its own: give it without {' and '.join(wrong)}")
        return _ablate(load_settings(config, overrides, model, device), names_in(ablate), seeds, as_json)
    settings = load_settings(config, overrides, model, device)
    checkpoint = choose_checkpoint(settings, checkpoint, untrained)

    import asyncio

    from llm_as_judge.commands.compare_run import run_comparison
    from llm_as_judge.views.terminal import TerminalProgress

    console = make_console(as_json)
    console.print(policy_name(checkpoint), highlight=False, soft_wrap=True)
    with TerminalProgress(console) as progress:
        result = asyncio.run(
            run_comparison(
                settings,
                data=data,
                checkpoint=checkpoint,
                limit=limit,
                tokens=tokens,
                progress=progress,
            )
        )
    for name, path in (("figures", result.file), ("picture", result.picture)):
        console.print(f"{name} {path}", highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(result.table)


def _ablate(settings: Config, parts: list[str], seeds: int, as_json: bool) -> None:
    """Train with everything and without each part, and print what it was worth (accuracy, tokens)."""
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.evaluation.ablation import PARTS

    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(f"--ablate {unknown[0]!r}: there are {', '.join(PARTS)}")

    import asyncio

    from llm_as_judge.commands.ablate_run import run_ablation
    from llm_as_judge.views.terminal import TerminalProgress

    console = make_console(as_json)
    with TerminalProgress(console) as progress:
        result = asyncio.run(run_ablation(settings, parts, seeds, progress=progress))
    console.print(f"figures {result.file}", highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        typer.echo(result.table)
