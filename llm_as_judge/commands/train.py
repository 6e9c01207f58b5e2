"""``llm-as-judge train``: GRPO on the policy's adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    Interrupted,
    ModelName,
    Overrides,
    followed,
    load_settings,
    make_console,
    print_json,
)

if TYPE_CHECKING:
    from llm_as_judge.views.terminal import Measured


def train(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", metavar="N", help="Total number of optimiser steps.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Continue from the run's last checkpoint, or start anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train the policy by GRPO."""
    if followed():
        return

    settings = load_settings(config, overrides, model, device, max_steps=max_steps)

    import asyncio
    import time

    from llm_as_judge.commands.train_run import train as run
    from llm_as_judge.views.evaluation import usage_table
    from llm_as_judge.views.terminal import (
        TerminalProgress,
        gain_line,
        plans_table,
        result_table,
        shapes_table,
        unseen_line,
    )

    console, begun = make_console(as_json), time.time()
    try:
        with TerminalProgress(console) as progress:
            result = asyncio.run(run(settings, resume=resume, progress=progress))
    except (KeyboardInterrupt, OSError) as error:
        from llm_as_judge.assembly.policy import newest_checkpoint

        newest = newest_checkpoint(settings)
        # A file system's clock may lag behind the processor's by a tick.
        resumable = newest is not None and (resume or newest.stat().st_mtime >= begun - 1)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(resumable) from error
        if resumable:
            typer.echo(
                f"the last checkpoint is {newest}; when the error is mended, go on from it with --resume", err=True
            )
        raise
    if as_json:
        print_json(result.as_json())
    lines: dict[str, Measured] = {"untrained policy": result.before, "trained policy": result.after}
    console.print(result_table(lines | {row.name: row for row in result.baselines}, result.after.overall.n))
    console.print(gain_line(result.gain), highlight=False)
    console.print(shapes_table(result.before.shapes, result.after.shapes))
    if line := unseen_line(result.before, result.after):
        console.print(line, highlight=False)
    if result.workflows:
        console.print(plans_table(result.workflows, result.learned))
    if (judge := result.judge) and judge.agreement is not None:
        console.print(
            f"The LLM judge alone agrees with the truth on {100 * judge.agreement:.1f} % of "
            f"{judge.pairs} answers ({judge.false_accepts} false accepts, "
            f"{judge.false_rejects} false rejects, {judge.abstained} abstained)."
        )
    console.print(usage_table(result.usage))
    console.print(
        f"trained {result.steps} steps in {result.seconds['training']:.0f} s; all in {result.seconds['all']:.0f} s"
    )
    folder = result.run.folder
    for name, file in (("adapter", result.adapter), ("results", folder.results), ("curve", folder.curve)):
        console.print(f"{name:8}{file}", highlight=False, soft_wrap=True)
