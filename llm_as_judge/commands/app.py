"""The command line, ``llm-as-judge COMMAND``: registers the commands and turns errors into messages and exit statuses.

Commands import what they need when they run, so that ``--help`` starts without torch.
Exit status: 0 success, 1 negative finding (lint, doctor) or no answer (solve), 2 wrong usage or a known error,
130 Ctrl-C, 143 SIGTERM. Any other error is a bug and keeps its traceback.
"""

import logging
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from llm_as_judge.commands import (
    compare,
    data,
    doctor,
    embedded,
    evaluate,
    export,
    init,
    judge,
    plan,
    sandbox,
    selftest,
    serve,
    solve,
    train,
    view,
    warmup,
    watch,
    workflow,
)  # fmt: skip
from llm_as_judge.commands.cli import Interrupted, file_problem, printable
from llm_as_judge.errors import ConfigError, LLMAsJudgeError, is_out_of_memory, without_key

# Rich's help and tracebacks would double the start-up time.
app = typer.Typer(
    help="Train a small policy that writes agent workflows, and use it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _command in (
    init.init, train.train, plan.plan, warmup.warmup, evaluate.evaluate, compare.compare, watch.analyze, watch.monitor,
    view.view, watch.report, solve.solve, export.export, serve.serve, selftest.selftest, doctor.doctor,
):  # fmt: skip
    app.command()(_command)
for _group in (workflow, sandbox, judge, embedded, data):
    _group.app.callback()(lambda: None)  # typer would make the only command of a group the group itself
    app.add_typer(_group.app, name=_group.__name__.rpartition(".")[2])

#: Base class of typer's usage errors, which typer itself does not export.
(UsageError,) = typer.BadParameter.__bases__


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
    if sys.flags.optimize > 1:
        raise ConfigError("PYTHONOPTIMIZE=2 (python -OO) removes docstrings that transformers reads; unset it")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigError("the current folder was deleted; change to another one") from None
    if Path(".env").is_file():  # before torch is loaded, which reads CUDA_VISIBLE_DEVICES
        from llm_as_judge.config.sources import environment

        os.environ.update(environment(Path()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. ``LLM_AS_JUDGE_DEBUG=1`` shows tracebacks."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Imported by PEFT where it is installed, it warns of a package that is not needed.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal's encoding lacks are escaped
        if (stream.encoding or "").lower().replace("-", "") != "utf8" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    terminated: list[int] = []
    try:
        for before, word in zip(("llm-as-judge", *arguments), arguments, strict=False):
            if not word or re.fullmatch("--[a-z-]+=", word):  # such as "$FILE": a path would be the current folder
                raise ConfigError(f"the value of {word[:-1] or before} is empty; give one, or leave it out")
        if {"--resume", "--fresh"} <= set(arguments):
            raise ConfigError("--resume and --fresh exclude each other; give one of them")
        with _sigterm_as_interrupt(terminated):
            status = app(args=list(arguments), prog_name="llm-as-judge", standalone_mode=False)
        if status == 130:  # some versions of typer return this after Ctrl-C, others raise
            raise KeyboardInterrupt
        sys.stdout.flush()  # here, where a closed pipe is handled
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, Interrupted) as interrupted:
        return _interrupted(arguments, interrupted, bool(terminated))
    except (SystemExit, BrokenPipeError) as stop:
        if isinstance(stop.__context__ or stop, BrokenPipeError):  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        assert isinstance(stop, SystemExit)  # called by code of the user; it must not pass for success
        line = traceback.extract_tb(stop.__traceback__)[-1]
        sys.stderr.write(f"error: {line.filename}, line {line.lineno}: sys.exit({stop.code}); raise an error instead\n")
        return 2
    except Exception as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            return _interrupted(arguments, error, bool(terminated))
        message = _explained(error, arguments)
        if message is None or os.environ.get("LLM_AS_JUDGE_DEBUG") == "1":
            raise
        message = re.sub(r"\S{200,}", lambda word: f"{word[0][:100]}...", _without_secrets(message, arguments))
        sys.stderr.write(f"{printable(message)}\n")
        return 2


def _explained(error: Exception, arguments: Sequence[str]) -> str | None:
    """Explain an error that the user can correct, with value and cure; None for a bug."""
    if isinstance(error, LLMAsJudgeError):
        return f"error: {error}"
    if isinstance(error, UsageError):
        message: str = error.format_message()  # type: ignore[attr-defined]
        if message.startswith("Usage:"):  # a group of commands without a command
            return message
        message = " ".join(message.split()).removesuffix(".")
        quotes = "put quotes around words that belong together, or " if "unexpected extra argument" in message else ""
        return f"error: {message[:1].lower()}{message[1:]}; {quotes}see --help"
    if is_out_of_memory(error):
        size = re.search(r"tried to allocate [\d.]+ \w+", str(error), re.IGNORECASE)
        return (
            f"error: not enough memory{f' ({size[0]})' if size else ''}; lower rollout_batch_size, micro_batch_tokens, "
            "num_return_sequences_in_group, prompt_max_length or response_max_length, or use a smaller model"
        )
    missing = isinstance(error, FileNotFoundError)  # a bug, unless a folder cannot be made, as in /proc
    if missing and traceback.extract_tb(error.__traceback__)[-1].name != "mkdir":
        return None
    problem = file_problem(error, next(iter(arguments), ""))
    return f"error: {problem}" if problem else None


@contextmanager
def _sigterm_as_interrupt(terminated: list[int]) -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that a run saves; ``terminated`` records it for the exit status."""

    def on_sigterm(number: int, frame: Any) -> None:
        terminated.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell script sets this for background jobs
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    before, on_sigint = signal.signal(signal.SIGTERM, on_sigterm), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, on_sigint)


def _interrupted(arguments: Sequence[str], error: BaseException, terminated: bool) -> int:
    """Say how to continue, where that is possible; returns the exit status."""
    hint = ""
    if isinstance(error, Interrupted):
        again = shlex.join(word for word in arguments if word not in ("--resume", "--fresh"))
        command = _without_secrets(f"llm-as-judge {again} --resume", arguments)
        hint = f"; continue with: {command}" if error.resumable else "; nothing was saved yet"
    sys.stderr.write(f"{'terminated' if terminated else 'interrupted'}{hint}\n")
    return 143 if terminated else 130


def _without_secrets(text: str, arguments: Sequence[str]) -> str:
    """Return ``text`` without the API keys in ``arguments`` and without passwords in addresses."""
    for word in arguments:
        _, is_key, secret = word.partition("api_key=")
        if is_key and secret:
            text = without_key(text.replace(shlex.quote(word), f"{word.removesuffix(secret)}..."), secret, "...")
    return re.sub(r"(https?://)[^/@\s'\"]+@", r"\1...@", text)


if __name__ == "__main__":
    sys.exit(main())
