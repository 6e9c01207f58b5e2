"""``llm-as-judge workflow``: check a workflow's text, or run it on a problem without any policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    DomainName,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    make_question,
    print_json,
    print_result,
)

app = typer.Typer(
    help="Check or run a workflow of a file, or a graph folder of AFlow's.", no_args_is_help=True, rich_markup_mode=None
)

WorkflowPath = Annotated[
    Path,
    typer.Argument(metavar="PATH", exists=True, help="A workflow's file, or a folder with graph.py and prompt.py."),
]
EntryPoint = Annotated[
    str | None,
    typer.Option("--entry-point", metavar="NAME", help="Name of the function to write; makes it a code problem."),
]


@app.command()
def lint(
    path: WorkflowPath,
    entry_point: EntryPoint = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List what is wrong with a workflow; exit status 1 if it could not run."""
    from llm_as_judge.operators.catalog import load_operators
    from llm_as_judge.workflow.lint.check import lint as find
    from llm_as_judge.workflow.source import read_workflow

    operators = load_operators(load_settings(config, overrides, model, device).workflow.operators)
    workflow = read_workflow(path)
    findings = find(workflow.text, entry_point=entry_point, operators=operators, prompt=workflow.prompt)
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            kind = "error" if finding.fatal else "warning"
            typer.echo(f"{workflow.file}:{finding.line}: {finding.code} {kind}: {finding.message}")
        if not findings:
            typer.echo(f"{workflow.file}: nothing found")
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)


@app.command()
def run(
    path: WorkflowPath,
    problem: Annotated[str, typer.Option("--problem", metavar="TEXT", help="Text of the problem.")],
    entry_point: EntryPoint = None,
    domain: DomainName = "math",
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Run a workflow on one problem; exit status 1 if it comes to no answer."""
    question = make_question(problem, "code" if entry_point else domain, entry_point)
    settings = load_settings(config, overrides, model, device)

    import asyncio

    from llm_as_judge.commands.solve_run import run_workflow
    from llm_as_judge.workflow.source import read_workflow

    execution = asyncio.run(run_workflow(settings, read_workflow(path), question))
    result = {**dataclasses.asdict(execution), "tokens": execution.tokens, "cost": execution.cost}
    if not as_json:
        result["calls"] = ", ".join(call.name for call in execution.calls)
    print_result(result, as_json, make_console(as_json))
    if execution.outcome != "finished":
        raise typer.Exit(1)
