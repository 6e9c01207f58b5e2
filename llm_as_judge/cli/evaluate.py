"""``llm-as-judge evaluate``: official metrics of the policy on held-out problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.cli.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    ModelName,
    Overrides,
    Untrained,
    choose_checkpoint,
    make_console,
    policy_name,
    print_json,
)


def evaluate(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    data: Annotated[Path | None, typer.Option("--data", exists=True, dir_okay=False, help="JSONL of problems.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Evaluate only so many.")] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate the policy, with or without a trained adapter."""
    from llm_as_judge.config.loading import load_config

    settings = load_config(config, overrides or [], extra={"model.model_name": model})

    checkpoint = choose_checkpoint(settings, checkpoint, untrained)

    import asyncio

    from llm_as_judge.runs.evaluate import run_evaluation
    from llm_as_judge.views.terminal import TerminalProgress, result_table

    console = make_console(as_json)
    with TerminalProgress(console) as progress:
        result = asyncio.run(run_evaluation(settings, data=data, checkpoint=checkpoint, limit=limit, progress=progress))
    console.print(policy_name(checkpoint), highlight=False)
    console.print(result_table({"policy": result.summary}, result.summary.overall.n))
    if as_json:
        print_json(result.as_json())
