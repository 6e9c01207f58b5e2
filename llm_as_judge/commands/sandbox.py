"""``llm-as-judge sandbox``: judge a solution by its tests or run a file, as training does with untrusted code."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from llm_as_judge.commands.options import AsJson, make_console, print_result, printable

if TYPE_CHECKING:
    from llm_as_judge.sandbox.host import CodeVerdict, Sandbox

app = typer.Typer(help="Run untrusted code, or judge it by tests.", no_args_is_help=True, rich_markup_mode=None)

Mode = Annotated[str | None, typer.Option("--sandbox", metavar="MODE", help="auto, full, standard, no-open or unsafe.")]
CpuSeconds = Annotated[int | None, typer.Option("--cpu-seconds", min=1, metavar="N", help="CPU seconds per process.")]
WallSeconds = Annotated[
    float | None, typer.Option("--wall-seconds", min=0.1, metavar="N", help="Wall-clock seconds per process.")
]
MemoryMb = Annotated[
    int | None, typer.Option("--memory-mb", min=64, metavar="N", help="Address space per process in MB.")
]

T = TypeVar("T")
Given = dict[str, str | float | None]


@app.command()
def verdict(
    solution: Annotated[Path, typer.Option("--solution", metavar="FILE", help="File with the solution.")],
    tests: Annotated[
        Path,
        typer.Option(
            "--tests", metavar="FILE", help="File with asserts, def check(candidate), or test functions and classes."
        ),
    ],
    entry_point: Annotated[str, typer.Option("--entry-point", metavar="NAME", help="Name of the function to test.")],
    mode: Mode = None,
    cpu_seconds: CpuSeconds = None,
    wall_seconds: WallSeconds = None,
    memory_mb: MemoryMb = None,
    as_json: AsJson = False,
) -> None:
    """Run tests on a solution; exit status 1 if it fails them. Tests that also pass an empty solution are refused.

    ``mode`` of the result is split if the solution ran in a process of its own, nonce if the tests do not allow that. A
    solution written to deceive could have forged a weak verdict.
    """
    from llm_as_judge.errors import DataError, SandboxFault
    from llm_as_judge.files import read_source
    from llm_as_judge.sandbox.code_verdict import vacuous

    solution_text, tests_text = read_source(solution), read_source(tests)

    async def judge(box: Sandbox) -> CodeVerdict:
        if found := await vacuous(box, tests_text, entry_point):
            raise DataError(f"{tests}:{found.line}: {found.reason}")
        return await box.verdict(solution_text, tests_text, entry_point)

    found, sandbox = _run(_given(mode, cpu_seconds, wall_seconds, memory_mb), judge)
    if found.outcome == "fault":
        raise SandboxFault(f"no verdict: {found.error}")
    print_result({**dataclasses.asdict(found), "sandbox": sandbox}, as_json, make_console(as_json))
    if not found.passed:
        raise typer.Exit(1)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    mode: Mode = None,
    cpu_seconds: CpuSeconds = None,
    wall_seconds: WallSeconds = None,
    memory_mb: MemoryMb = None,
    as_json: AsJson = False,
) -> None:
    """Run a Python file and print what it prints; exit status 1 if it does not finish."""
    from llm_as_judge.errors import SandboxFault
    from llm_as_judge.files import read_source

    source = read_source(file)
    given = _given(mode, cpu_seconds, wall_seconds, memory_mb)
    found, sandbox = _run(given, lambda box: box.run_code(source))
    if found.outcome == "fault":
        raise SandboxFault(f"not run: {found.error}")
    if as_json:
        result = dataclasses.asdict(found)
        del result["value"]
        print_result({**result, "sandbox": sandbox}, as_json, make_console(as_json))
    else:
        typer.echo(printable(found.stdout) if sys.stdout.isatty() else found.stdout, nl=False)
        if found.outcome != "finished":
            typer.echo(printable(f"{found.outcome}: {found.error}"), err=True)
    if found.outcome != "finished":
        raise typer.Exit(1)


def _given(mode: str | None, cpu_seconds: int | None, wall_seconds: float | None, memory_mb: int | None) -> Given:
    return {"mode": mode, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds, "memory_mb": memory_mb}


def _run(given: Given, work: Callable[[Sandbox], Awaitable[T]]) -> tuple[T, str]:
    """Result of ``work`` in a sandbox with these limits, by default the configured ones, and the sandbox's mode."""
    import asyncio

    from llm_as_judge.config.loading import load_config
    from llm_as_judge.sandbox.host import Sandbox

    async def main() -> tuple[T, str]:
        config = load_config(extra={f"sandbox.{name}": value for name, value in given.items()})
        async with Sandbox(config.sandbox) as sandbox:
            return await work(sandbox), sandbox.describe().mode

    return asyncio.run(main())
