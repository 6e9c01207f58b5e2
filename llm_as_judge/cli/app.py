"""The command line, ``llm-as-judge COMMAND``; here alone an error becomes a message and an exit status.

Commands import what they need when they run, so that ``--help`` needs neither torch nor a second.
Exit status: 0 done, 1 done with a negative finding (lint, doctor), 2 wrong use or a known error, 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Sequence

import typer

from llm_as_judge.cli import compare, data, doctor, embedded, evaluate, judge, sandbox, solve, train, workflow
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
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.command()(solve.solve)
app.add_typer(workflow.app, name="workflow")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(judge.app, name="judge")
app.add_typer(embedded.app, name="embedded")
app.add_typer(data.app, name="data")
app.command()(doctor.doctor)

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. ``LLM_AS_JUDGE_DEBUG=1`` shows tracebacks."""
    debug = os.environ.get("LLM_AS_JUDGE_DEBUG") == "1"
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=list(arguments), prog_name="llm-as-judge")
    except SystemExit as exit_:
        if _by_interrupt(exit_):
            return _interrupted(arguments)
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except KeyboardInterrupt:
        return _interrupted(arguments)
    except LLMAsJudgeError as error:
        if debug:
            raise
        return _fail(str(error))
    except OSError as error:
        if debug or error.errno not in _UNWRITABLE or error.filename is None:
            raise
        reason = os.strerror(error.errno).lower()
        return _fail(
            f"{error.filename}: {reason}; make it writable or make room, or put the outputs elsewhere: "
            "--set output_dir=DIR --set log_dir=DIR --set results_dir=DIR"
        )
    return 0


def _by_interrupt(error: BaseException | None) -> bool:
    """Typer makes an exit of Ctrl-C; its status differs by version, so ask for the cause."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2


def _interrupted(arguments: Sequence[str]) -> int:
    hint = ""
    if arguments and arguments[0] == "train":
        again = [word for word in arguments if word not in ("--resume", "--fresh")]
        hint = f"; go on from the last checkpoint with: llm-as-judge {shlex.join(again)} --resume"
    sys.stderr.write(f"interrupted{hint}\n")
    return 130


if __name__ == "__main__":
    sys.exit(main())
