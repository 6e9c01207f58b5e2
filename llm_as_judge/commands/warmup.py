"""``llm-as-judge warmup``: the cold start of a policy that does not write valid workflows yet."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    followed,
    load_settings,
    make_console,
    print_json,
)


def warmup(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="Maximum number of optimiser steps.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the last checkpoint, or start anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Teach the policy to write valid workflows of many shapes, before it is trained by GRPO."""
    if followed():
        return

    settings = load_settings(config, overrides, model, device, sft_steps=steps)

    from llm_as_judge.commands.warmup_run import warm_up
    from llm_as_judge.views.terminal import TerminalProgress

    console = make_console(as_json)
    with TerminalProgress(console) as progress:
        result = warm_up(settings, resume=resume, progress=progress)
    if as_json:
        print_json(result.as_json())
    before, after = (f"{100 * look.written.valid_rate:.0f} %" for look in (result.looks[0], result.looks[-1]))
    wrong = result.looks[-1].written.reasons
    console.print(f"valid workflows: {before} before, {after} after{wrong}", highlight=False, markup=False)
    console.print(f"adapter {result.adapter}", highlight=False, soft_wrap=True)
    console.print(f"train from it with: --set model.adapter={result.adapter}", highlight=False, soft_wrap=True)
