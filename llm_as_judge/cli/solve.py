"""``llm-as-judge solve``: one problem, one workflow written for it, one answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from llm_as_judge.cli.options import (
    DEFAULT_CONFIG,
    AsJson,
    Checkpoint,
    ConfigPath,
    DomainName,
    Overrides,
    Untrained,
    choose_checkpoint,
    make_console,
    make_question,
    policy_name,
    print_json,
    read_source,
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
    problem: Annotated[str | None, typer.Argument(help="The problem's text.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="Read the problem from a file.")
    ] = None,
    domain: DomainName = "math",
    entry_point: Annotated[
        str | None, typer.Option("--entry-point", help="Function to be written, for code problems.")
    ] = None,
    config: ConfigPath = DEFAULT_CONFIG,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Initialise variables the workflow may leave unbound; is told.")
    ] = False,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Where the workflow fails, ask the executor plainly; is told.")
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write a workflow for PROBLEM, run it and print the answer."""
    from llm_as_judge.config.loading import load_config
    from llm_as_judge.errors import ConfigError

    if (problem is None) == (file is None):
        raise ConfigError("give either the problem's text or --file FILE")
    question = make_question(read_source(file) if file else problem or "", domain, entry_point)
    settings = load_config(config, overrides or [])

    checkpoint = choose_checkpoint(settings, checkpoint, untrained)

    import asyncio

    from llm_as_judge.runs.solve import solve as run

    console = make_console(as_json)
    solution = asyncio.run(run(settings, question, checkpoint=checkpoint, repair=repair, fallback=fallback))
    console.print(policy_name(checkpoint), highlight=False)
    result = solution.as_json()
    if as_json:
        print_json(result)
        return
    for line in solution_lines(result):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
