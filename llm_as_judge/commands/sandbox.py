"""``llm-as-judge sandbox``: judge a solution by its tests or run a file, as training does with untrusted code."""

import dataclasses
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import SandboxFault
from llm_as_judge.files import read_source

if TYPE_CHECKING:
    from llm_as_judge.sandbox.host import CodeVerdict, Sandbox

app = typer.Typer(help="Run untrusted code, or judge it by tests.", no_args_is_help=True, rich_markup_mode=None)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the sandbox; None: the defaults."""

    mode: Annotated[
        str | None, typer.Option("--sandbox", metavar="MODE", help="auto, full, standard, no-open or unsafe.")
    ] = None
    cpu_seconds: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU seconds per process.")] = None
    wall_seconds: Annotated[float | None, typer.Option(min=0.1, metavar="N", help="Seconds per process.")] = None
    memory_mb: Annotated[int | None, typer.Option(min=64, metavar="N", help="Address space per process in MB.")] = None

    def run(self, work: "Callable[[Sandbox], Awaitable[T]]") -> tuple[T, str]:
        """Run ``work`` in a sandbox with these limits; returns its result and the sandbox's mode."""
        from llm_as_judge.config.loading import load_config
        from llm_as_judge.sandbox.host import Sandbox

        given = {f"sandbox.{name}": value for name, value in dataclasses.asdict(self).items()}
        config = load_config(extra=given).sandbox

        async def main() -> tuple[T, str]:
            async with Sandbox(config) as sandbox:
                return await work(sandbox), sandbox.describe().mode

        return cli.run(main())


@app.command()
@cli.grouped
def verdict(
    solution: Annotated[Path, typer.Option(metavar="FILE", help="File with the solution.")],
    tests: Annotated[Path, typer.Option(metavar="FILE", help="File with asserts, or with def check(candidate).")],
    entry_point: Annotated[
        str, typer.Option(metavar="NAME", callback=cli.function_name, help="Name of the function to test.")
    ],
    limits: Limits,
    as_json: cli.AsJson = False,
) -> None:
    """Run tests on a solution; exit status 1 if it fails them. Tests that also pass an empty solution are refused.

    ``mode`` of the result is split if the solution ran in a process of its own, nonce if the tests do not allow that. A
    solution written to deceive could have forged a weak verdict.
    """
    from llm_as_judge.assembly.check import prove_tests

    solution_text, tests_text = read_source(solution), read_source(tests)

    async def judge(box: "Sandbox") -> "CodeVerdict":
        await prove_tests(box, tests_text, entry_point)
        return await box.verdict(solution_text, tests_text, entry_point)

    found, sandbox = limits.run(judge)
    if found.outcome == "fault":
        raise SandboxFault(f"no verdict: {found.error}")
    cli.print_result({**dataclasses.asdict(found), "sandbox": sandbox}, as_json, ok=found.passed)


@app.command()
@cli.grouped
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    limits: Limits,
    as_json: cli.AsJson = False,
) -> None:
    """Run a Python file and print what it prints; exit status 1 if it does not finish."""
    source = read_source(file)
    found, sandbox = limits.run(lambda box: box.run_code(source))
    if found.outcome == "fault":
        raise SandboxFault(f"not run: {found.error}")
    if as_json:
        cli.print_json({**dataclasses.asdict(found), "sandbox": sandbox})
    else:
        typer.echo(cli.printable(found.stdout) if sys.stdout.isatty() else found.stdout, nl=False)
    if found.outcome != "finished":
        cli.echo(f"{found.outcome}: {found.error}", err=True)
        raise typer.Exit(1)
