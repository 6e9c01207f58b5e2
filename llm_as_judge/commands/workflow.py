"""``llm-as-judge workflow``: check a workflow, or run it on a problem without a policy."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.types import Execution
from llm_as_judge.workflow.user_file import read_workflow

app = typer.Typer(help="Check or run workflows and AFlow graphs.", no_args_is_help=True, rich_markup_mode=None)

WorkflowPath = Annotated[
    Path, typer.Argument(metavar="PATH", exists=True, help="Workflow file, or folder with graph.py and prompt.py.")
]


@app.command()
@cli.grouped
def lint(
    options: cli.ConfigOptions, path: WorkflowPath, entry_point: cli.EntryPoint = None, as_json: cli.AsJson = False
) -> None:
    """List errors and warnings of a workflow. The exit status is 1 if there is an error; warnings alone give 0."""
    from llm_as_judge.operators.catalog import load_operators
    from llm_as_judge.workflow.lint.check import lint as find

    settings, workflow = options.load(), read_workflow(path)
    operators, executors = load_operators(settings.workflow.operators), tuple(settings.executors)
    findings = find(
        workflow.text, entry_point=entry_point, operators=operators, prompt=workflow.prompt, executors=executors
    ).findings
    lines = [f"{f.line}: {f.code} {'error' if f.fatal else 'warning'}: {f.message}" for f in findings]
    text = "\n".join(f"{workflow.file}:{line}" for line in lines or [" no findings"])
    cli.print_result(findings, as_json, text, not any(finding.fatal for finding in findings))


@app.command()
@cli.grouped
def run(
    options: cli.ConfigOptions,
    path: WorkflowPath,
    problem: Annotated[str, typer.Option(metavar="TEXT", help="Text of the problem.")],
    entry_point: cli.EntryPoint = None,
    domain: cli.DomainName = "math",
    as_json: cli.AsJson = False,
) -> None:
    """Run a workflow on one problem. The exit status is 1 without an answer."""
    from llm_as_judge.assembly.services import open_services

    settings, workflow = options.load(), read_workflow(path)
    question = settings.data.question("cli", problem, "code" if entry_point else domain, entry_point)

    async def execute() -> Execution:
        async with open_services(settings, judging=False) as services:
            return await services.runner.beside(workflow.prompt).run(workflow.text, question)

    cli.show_caveat(cli.make_console(as_json), settings)
    execution = cli.run(execute())
    result = {**dataclasses.asdict(execution), "tokens": execution.tokens, "cost": execution.cost}
    if not as_json:  # the fatal findings are the error
        warnings = [f"{one.code} line {one.line}: {one.message}" for one in execution.findings if not one.fatal]
        result["findings"] = "; ".join(warnings)
        result["calls"] = ", ".join(f"{c.name} ({c.executor})" if c.executor else c.name for c in execution.calls)
    cli.print_result(result, as_json, ok=execution.outcome == "finished")
