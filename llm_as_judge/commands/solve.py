"""``llm-as-judge solve``: one problem, one workflow written for it, one answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    Device,
    DomainName,
    ModelName,
    Overrides,
    Untrained,
    choose_checkpoint,
    load_settings,
    make_console,
    make_question,
    policy_name,
    print_json,
)


def solution_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The workflow, each operator call with its result, and the answer."""
    yield result["workflow"]
    yield ""
    for number, call in enumerate(result["trace"], start=1):
        exchanges = call["exchanges"]
        tokens = sum(e["prompt_tokens"] + e["completion_tokens"] for e in exchanges)
        yield f"call {number}: {call['name']}, {len(exchanges)} LLM calls, {tokens} tokens, {call['seconds']:.2f} s"
        for key, value in call["result"].items():
            if key not in ("parse_ok", "error") or value not in (True, ""):
                yield f"    {key}: {value}"
    marks = [name for name in ("repaired", "fallback") if result[name]]
    if result["error"]:
        yield f"{result['outcome']}: {result['error']}"
    yield f"answer{' (' + ', '.join(marks) + ')' if marks else ''}: {result['answer']}"


def solve(
    problem: Annotated[str | None, typer.Argument(metavar="PROBLEM", help="Text of the problem.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", exists=True, dir_okay=False, help="Read the problem from a file."),
    ] = None,
    domain: DomainName = "math",
    entry_point: Annotated[
        str | None,
        typer.Option("--entry-point", metavar="NAME", help="Name of the function to write, for code problems."),
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Initialise variables that the workflow may leave unbound, and say so.")
    ] = False,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="If the workflow fails, ask the executor directly, and say so.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write a workflow for PROBLEM, run it and print the answer; exit status 1 if there is none."""
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.files import read_source

    if (problem is None) == (file is None):
        raise ConfigError("give either the problem's text or --file FILE")
    question = make_question(read_source(file) if file else problem or "", domain, entry_point)
    settings = load_settings(config, overrides, model, device)

    checkpoint = choose_checkpoint(settings, checkpoint, untrained)

    import asyncio

    from llm_as_judge.commands.solve_run import solve as run
    from llm_as_judge.embedded.world import CAVEAT, outside

    console = make_console(as_json)
    if settings.executor.provider == "embedded" and outside(question):
        console.print(CAVEAT, highlight=False, soft_wrap=True)
    solution = asyncio.run(run(settings, question, checkpoint=checkpoint, repair=repair, fallback=fallback))
    console.print(policy_name(checkpoint), highlight=False)
    result = solution.as_json()
    if as_json:
        print_json(result)
    else:
        for line in solution_lines(result):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result["outcome"] != "finished":
        raise typer.Exit(1)
