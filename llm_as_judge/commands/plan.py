"""``llm-as-judge plan``: memory, tokens, seconds and money of a run, on paper."""

from __future__ import annotations

from pathlib import Path
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


def plan(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="NxCARD", help="Such as 2x80 (A100) or 4xH100-80; may be repeated."),
    ] = None,
    latency: Annotated[float, typer.Option("--latency", min=0, help="Seconds of one call of executor or judge.")] = 5.0,
    calls: Annotated[float, typer.Option("--calls", min=0, help="Calls of the executor for each workflow.")] = 3.0,
    call_input: Annotated[float, typer.Option("--call-input", min=0, help="Prompt tokens of a call.")] = 400.0,
    call_output: Annotated[float, typer.Option("--call-output", min=0, help="Reply tokens of a call.")] = 500.0,
    completion: Annotated[
        float | None, typer.Option("--completion", min=1, help="Tokens of a workflow; default: the hand-written ones'.")
    ] = None,
    gpu_price: Annotated[float, typer.Option("--gpu-price", min=0, help="Price of one card for an hour.")] = 0.0,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", exists=True, dir_okay=False, help="An earlier run's log, to take calls and lengths from."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a run will take, what does not fit, and which setting helps."""
    settings = load_settings(config, overrides, model, None)

    from llm_as_judge.commands.plan_report import plan_report
    from llm_as_judge.commands.plan_run import MACHINES, Assumed
    from llm_as_judge.commands.plan_run import plan as make

    assumed = Assumed(latency, calls, call_input, call_output, completion, gpu_price)
    found = make(settings, tuple(machine or MACHINES), assumed, log)
    if as_json:
        print_json(found.as_json())
        return
    console = make_console(False)
    for part in plan_report(found):
        console.print(part)
