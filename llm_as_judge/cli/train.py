"""``llm-as-judge train``: GRPO on the policy's adapter."""

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
    make_console,
    print_json,
)


def train(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", help="Optimiser steps in all.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the run's last checkpoint, or start anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train the policy by GRPO."""
    from llm_as_judge.config.loading import load_config

    flags = {"model.model_name": model, "model.device": device, "training.max_steps": max_steps}
    settings = load_config(config, overrides or [], extra=flags)

    from llm_as_judge.grpo_trainer import run_training

    console = make_console(as_json)
    result = run_training(settings, resume=resume, console=console)
    if as_json:
        print_json(result)
