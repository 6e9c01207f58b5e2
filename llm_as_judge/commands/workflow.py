"""``llm-as-judge workflow``: check a workflow, or run it on a problem without a policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands.options import (
    AsJson,
    ConfigOptions,
    DomainName,
    EntryPoint,
    grouped,
    make_console,
    make_question,
    print_json,
    print_result,
    printable,
)

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.types import Execution, Question
    from llm_as_judge.workflow.source import WorkflowSource

app = typer.Typer(help="Check or run workflows and AFlow graphs.", no_args_is_help=True, rich_markup_mode=None)

WorkflowPath = Annotated[
    Path, typer.Argument(metavar="PATH", exists=True, help="Workflow file, or folder with graph.py and prompt.py.")
]


async def run_workflow(config: Config, workflow: WorkflowSource, question: Question) -> Execution:
    """Run a given workflow on one question."""
    from llm_as_judge.assembly.services import open_services

    async with open_services(config, judging=False) as services:
        return await services.runner.beside(workflow.prompt).run(workflow.text, question)


@app.command()
@grouped
def lint(options: ConfigOptions, path: WorkflowPath, entry_point: EntryPoint = None, as_json: AsJson = False) -> None:
    """List errors and warnings of a workflow.

    The exit status is 1 if the workflow cannot run.
    """
    from llm_as_judge.operators.catalog import load_operators
    from llm_as_judge.workflow.lint.check import lint as find
    from llm_as_judge.workflow.source import read_workflow

    operators = load_operators(options.load().workflow.operators)
    workflow = read_workflow(path)
    findings = find(workflow.text, entry_point=entry_point, operators=operators, prompt=workflow.prompt)
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            kind = "error" if finding.fatal else "warning"
            typer.echo(printable(f"{workflow.file}:{finding.line}: {finding.code} {kind}: {finding.message}"))
        if not findings:
            typer.echo(f"{workflow.file}: no findings")
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)


@app.command()
@grouped
def run(
    options: ConfigOptions,
    path: WorkflowPath,
    problem: Annotated[str, typer.Option("--problem", metavar="TEXT", help="Text of the problem.")],
    entry_point: EntryPoint = None,
    domain: DomainName = "math",
    as_json: AsJson = False,
) -> None:
    """Run a workflow on one problem.

    The exit status is 1 without an answer.
    """
    question = make_question(problem, "code" if entry_point else domain, entry_point)
    settings = options.load()

    import asyncio

    from llm_as_judge.workflow.source import read_workflow

    execution = asyncio.run(run_workflow(settings, read_workflow(path), question))
    result = {**dataclasses.asdict(execution), "tokens": execution.tokens, "cost": execution.cost}
    if not as_json:
        result["calls"] = ", ".join(call.name for call in execution.calls)
    print_result(result, as_json, make_console(as_json))
    if execution.outcome != "finished":
        raise typer.Exit(1)
