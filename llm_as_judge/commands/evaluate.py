"""``llm-as-judge evaluate``: official metrics of the policy on held-out problems."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    Device,
    Interrupted,
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
    from llm_as_judge.commands.evaluate_run import EvaluationResult


def evaluate(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    workflow: Annotated[
        Path | None,
        typer.Option(
            "--workflow",
            exists=True,
            metavar="PATH",
            help="Evaluate this workflow, a file or a folder with graph.py and prompt.py, instead of the policy.",
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            exists=True,
            dir_okay=True,
            metavar="FILE",
            help="File or folder of problems; by default the configured ones; may be repeated.",
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--datasets",
            metavar="NAME,...",
            help="Of the test sets in the --data folder, by default data/test, only these, by name.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="Evaluate only N problems: of each file the first."),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Workflows for each problem: pass@K beside pass@1.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on where the same evaluation was interrupted, or start anew.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate the policy, with or without a trained adapter, or a given workflow."""
    from llm_as_judge.data.problems import TEST_SETS, each_set, read_problems, sets_named
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.workflow.source import read_workflow

    if workflow and (checkpoint or untrained):
        raise ConfigError("--workflow takes the policy's place: give it without --checkpoint and --untrained")
    settings = load_settings(config, overrides, model, device)
    given = read_workflow(workflow) if workflow else None
    if datasets is not None:
        data = sets_named(data or [TEST_SETS], names_in(datasets))
    data = each_set(data or ())
    checkpoint = None if given else choose_checkpoint(settings, checkpoint, untrained)

    import asyncio
    import time

    from llm_as_judge.commands.evaluate_run import recorded_since, run_evaluation
    from llm_as_judge.embedded.world import CAVEAT, outside
    from llm_as_judge.views.evaluation import evaluation_report, summary_tables
    from llm_as_judge.views.terminal import TerminalProgress

    console, embedded = make_console(as_json), settings.executor.provider == "embedded"
    if embedded and any(outside(p.question) for path in data for p in read_problems(path, 20)):
        console.print(CAVEAT, highlight=False, soft_wrap=True)
    results, begun = [], time.time()
    for path in data or (None,):
        try:
            with TerminalProgress(console) as progress:
                result = asyncio.run(
                    run_evaluation(
                        settings,
                        data=path,
                        checkpoint=checkpoint,
                        workflow=given,
                        limit=limit,
                        samples=samples,
                        resume=resume,
                        progress=progress,
                    )
                )
        except KeyboardInterrupt as error:
            # A file system's clock may lag behind the processor's by a tick.
            raise Interrupted(recorded_since(settings, begun - 1)) from error
        results.append(result)
        name = f"workflow {given.file}" if given else policy_name(checkpoint)
        console.print(name, highlight=False, soft_wrap=True)
        for part in evaluation_report(result.rows, result.usage):
            console.print(part, highlight=False)
        if result.scored:
            console.print(f"results  {result.file}", highlight=False, soft_wrap=True)
        console.print(f"records  {result.records}", highlight=False, soft_wrap=True)
    for part in summary_tables([row for result in results for row in result.rows.items()]):
        console.print(part, highlight=False)
    if as_json:
        print_json(joined(results))
    if not all(result.scored for result in results):
        typer.echo("error: no problem could be scored, see the reasons above; results are left as they were", err=True)
        raise typer.Exit(1)


def joined(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """The rows of all files, and what the models were asked for them together."""
    from llm_as_judge.assembly.budget import added

    told = [result.as_json() for result in results]
    usage = functools.reduce(added, (result.usage for result in results))
    rows = [row for one in told for row in one["datasets"]]
    return {"model": told[0]["model"], "datasets": rows, "usage": {role: asdict(u) for role, u in usage.items()}}
