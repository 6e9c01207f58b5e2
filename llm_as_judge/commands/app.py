"""The command line, ``llm-as-judge COMMAND``; here alone an error becomes a message and an exit status.

Commands import what they need when they run, so that ``--help`` needs neither torch nor a second.
Exit status: 0 done, 1 done with a negative finding (lint, doctor) or without an answer (solve), 2 wrong use or a known
error, 130 Ctrl-C, 143 SIGTERM. What is no known error keeps its traceback: it is a bug of ours.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from llm_as_judge.commands import (
    analyze,
    compare,
    data,
    doctor,
    embedded,
    evaluate,
    export,
    judge,
    monitor,
    plan,
    report,
    sandbox,
    serve,
    solve,
    trace,
    train,
    view,
    warmup,
    workflow,
)
from llm_as_judge.commands.options import Interrupted
from llm_as_judge.errors import LLMAsJudgeError

# Rich's help and tracebacks would double the start-up time.
app = typer.Typer(
    help="Train a small policy that writes agent workflows, and use it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(train.train)
app.command()(plan.plan)
app.command()(warmup.warmup)
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.command()(analyze.analyze)
app.command()(monitor.monitor)
app.command()(view.view)
app.command()(report.report)
app.command()(trace.trace)
app.command()(solve.solve)
app.command()(export.export)
app.command()(serve.serve)
app.add_typer(workflow.app, name="workflow")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(judge.app, name="judge")
app.add_typer(embedded.app, name="embedded")
app.add_typer(data.app, name="data")
app.command()(doctor.doctor)

#: What the machine says of a path that the user named or left to the defaults.
_OF_THE_USERS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO,
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP,
)  # fmt: skip
#: What torch says of it: an error of its own on an accelerator, a common one on the CPU.
_OUT_OF_MEMORY = re.compile(r"^OutOfMemoryError: |^RuntimeError: .*can't allocate memory", re.DOTALL)
_ELSEWHERE = "--set output_dir=DIR --set log_dir=DIR --set results_dir=DIR"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"llm-as-judge {version('llm-as-judge')}")
        except PackageNotFoundError:
            typer.echo("llm-as-judge, not installed: run from its sources")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train a small policy that writes agent workflows, and use it."""
    if Path(".env").is_file():  # before torch is loaded: CUDA_VISIBLE_DEVICES must be there by then
        from llm_as_judge.config.sources import load_dotenv

        load_dotenv(Path())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. ``LLM_AS_JUDGE_DEBUG=1`` shows tracebacks."""
    debug = os.environ.get("LLM_AS_JUDGE_DEBUG") == "1"
    arguments = sys.argv[1:] if arguments is None else arguments
    terminated: list[int] = []
    try:
        with _sigterm_as_interrupt(terminated):
            status = app(args=list(arguments), prog_name="llm-as-judge", standalone_mode=False)
        if status == 130:  # some versions of typer make this of Ctrl-C, others an error
            return _interrupted(arguments, None, bool(terminated))
        return status if isinstance(status, int) else 0
    except KeyboardInterrupt:
        return _interrupted(arguments, None, bool(terminated))
    except Interrupted as interrupted:
        return _interrupted(arguments, interrupted, bool(terminated))
    except BrokenPipeError:  # the reader, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            return _interrupted(arguments, None, bool(terminated))
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error}\n")
            return 2
        if debug or (message := _explained(error)) is None:
            raise
        message = re.sub(r"\S{200,}", lambda word: f"{word[0][:100]}...", _without_secrets(message, arguments))
        sys.stderr.write(f"error: {message}\n")
        return 2


def _explained(error: Exception) -> str | None:
    """Value and cure of an error that a user can mend; None for a bug."""
    if isinstance(error, LLMAsJudgeError):
        return str(error)
    if (usage := getattr(error, "format_message", None)) is not None:  # of the parser of options
        message = " ".join(usage().split())
        return f"{message[:1].lower()}{message[1:].removesuffix('.')}; --help tells what there is"
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        size = re.search(r"tried to allocate [\d.]+ \w+", str(error), re.IGNORECASE)
        return (
            f"not enough memory{f' ({size[0]})' if size else ''}; lower rollout_batch_size, micro_batch_tokens, "
            "num_return_sequences_in_group, prompt_max_length or response_max_length, or take a smaller model"
        )
    if isinstance(error, OSError) and error.errno in _OF_THE_USERS:
        reason = os.strerror(error.errno).lower()
        if error.filename is None:
            return f"{reason}; make room or put the outputs elsewhere: {_ELSEWHERE}"
        place = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
        if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP):
            return f"{place}: {reason}; name another path, or move what is in the way"
        return f"{place}: {reason}; make it writable or make room, or put the outputs elsewhere: {_ELSEWHERE}"
    return None


@contextmanager
def _sigterm_as_interrupt(terminated: list[int]) -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, so that a run saves; ``terminated`` notes it for the exit status."""

    def on_sigterm(number: int, frame: Any) -> None:
        terminated.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what a script runs with &
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, on_sigint = signal.signal(signal.SIGTERM, on_sigterm), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, on_sigint)


def _interrupted(arguments: Sequence[str], interrupted: Interrupted | None, terminated: bool) -> int:
    hint = ""
    if interrupted is not None:
        again = [word for word in arguments if word not in ("--resume", "--fresh")]
        command = _without_secrets(f"llm-as-judge {shlex.join(again)} --resume", arguments)
        saved = f"; go on from there with: {command}"
        hint = saved if interrupted.resumable else "; nothing was saved yet"
    sys.stderr.write(f"{'terminated' if terminated else 'interrupted'}{hint}\n")
    return 143 if terminated else 130


def _without_secrets(text: str, arguments: Sequence[str]) -> str:
    """``text`` without the keys that the arguments give, and without passwords in addresses."""
    for word in arguments:
        _, is_key, secret = word.partition("api_key=")
        if is_key and secret:
            text = text.replace(shlex.quote(word), f"{word.removesuffix(secret)}...").replace(secret, "...")
    return re.sub(r"(https?://)[^/@\s'\"]+@", r"\1...@", text)


if __name__ == "__main__":
    sys.exit(main())
