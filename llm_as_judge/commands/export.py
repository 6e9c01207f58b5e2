"""``llm-as-judge export``: a trained policy as PEFT, vLLM and the Hugging Face hub take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    choose_checkpoint,
    load_settings,
    make_console,
    print_json,
)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; it must be new or empty.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model with the adapter merged in, not the adapter alone.")
    ] = False,
    base_model: Annotated[
        str | None,
        typer.Option("--base-model", metavar="ID", help="Hugging Face id of the base model, for card and adapter."),
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    checkpoint: Checkpoint = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained adapter or the merged model, with a model card, to DIR."""
    from llm_as_judge.errors import ConfigError

    settings = load_settings(config, overrides, model, device)
    chosen = choose_checkpoint(settings, checkpoint, untrained=False)
    if chosen is None:
        raise ConfigError("there is no trained adapter to export; train first, or name one with --checkpoint DIR")

    from llm_as_judge.commands.export_run import export as run

    result = run(settings, folder, chosen, merge=merge, base_model=base_model)
    if as_json:
        print_json(result.as_json())
        return
    console = make_console(as_json)
    for name, size in result.files.items():
        console.print(f"{size:>14,}  {folder / name}", highlight=False, soft_wrap=True)
    if not result.scores:
        console.print("the card has no scores: none is recorded of this adapter (evaluate makes some)")
    console.print(f"publish it with: huggingface-cli upload OWNER/NAME {folder}", highlight=False, soft_wrap=True)
