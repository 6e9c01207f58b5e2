"""``llm-as-judge solve``: one problem, a workflow written for it, and its answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import read_source

if TYPE_CHECKING:
    from llm_as_judge.solver import Solution
    from llm_as_judge.types import Execution


@cli.grouped
def solve(
    options: cli.ConfigOptions,
    adapter: cli.AdapterOptions,
    problem: Annotated[str | None, typer.Argument(metavar="PROBLEM", help="Text of the problem.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="File with the problem's text.")
    ] = None,
    domain: cli.DomainName = "math",
    entry_point: cli.EntryPoint = None,
    fallback: cli.Fallback = False,
    as_json: cli.AsJson = False,
) -> None:
    """Answer PROBLEM with a workflow written for it. The exit status is 1 without an answer."""
    if (problem is None) == (file is None):
        raise ConfigError("give either the problem's text or --file FILE")
    settings = options.load(repairs=adapter.repairs)
    question = settings.data.question("cli", read_source(file) if file else problem or "", domain, entry_point)
    checkpoint = adapter.choose(settings)

    from llm_as_judge.solver import Solver

    async def answer() -> "Solution":
        async with Solver(config=settings, checkpoint=checkpoint, untrained=checkpoint is None) as solver:
            return await solver.answer(question, fallback=fallback)

    console = cli.make_console(as_json)
    cli.show_caveat(console, settings)
    solution = cli.run(answer())
    cli.show(console, cli.policy_name(checkpoint, settings))
    cli.print_result(solution.as_json(), as_json, "\n".join(_lines(solution)), solution.execution.outcome == "finished")


def _lines(solution: "Solution") -> Iterator[str]:
    """Yield each attempt's workflow, operator calls with their results, and why it was repaired; then the answer."""
    for attempt in solution.attempts:
        yield from _run_lines(attempt.workflow, attempt.execution)
        yield f"{attempt.told}\n"
    yield from _run_lines(solution.workflow, solution.execution)
    yield f"answer{' (fallback)' if solution.fallback else ''}: {solution.answer}"


def _run_lines(workflow: str, execution: "Execution") -> Iterator[str]:
    yield f"{workflow}\n"
    for number, call in enumerate(execution.calls, start=1):
        name = f"{call.name} ({call.executor})" if call.executor else call.name
        yield f"call {number}: {name}, {len(call.exchanges)} LLM calls, {call.tokens} tokens, {call.seconds:.2f} s"
        for key, value in call.result.items():
            if key not in ("parse_ok", "error") or value not in (True, ""):
                yield f"    {key}: {value}"
    if execution.error:
        yield f"{execution.outcome}: {execution.error}"
