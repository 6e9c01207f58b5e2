"""Whole programs as functions: tests of a program call ``__main__(text)``, which is what it prints for that input."""

import inspect
from typing import Any

from llm_as_judge.answers.code import PROGRAM


def run_program(code: Any, names: dict[str, Any], given: str) -> str:
    """What a program prints, without spaces around it and its lines. Runs in the sandbox, sent as text."""
    import builtins
    import contextlib
    import io
    import sys

    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        return sys.stdin if file in (0, "/dev/stdin") else builtins.open(file, *args, **kwargs)

    printed = io.BytesIO()
    printed.close = lambda: None  # type: ignore[method-assign]
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8")
    writer = io.TextIOWrapper(printed, "utf-8", "replace", write_through=True)
    with contextlib.redirect_stdout(writer), contextlib.suppress(SystemExit):
        exec(code, {**names, "__name__": "__main__", "open": opened})
    return "\n".join(map(str.strip, printed.getvalue().decode("utf-8", "replace").strip().split("\n")))


def as_function(source: str, entry_point: str) -> str:
    """``source``, or for a whole program the source of ``__main__``, which runs it anew at every call."""
    if entry_point != PROGRAM:
        return source
    arguments = f'code=compile({source!r}, "<snippet>", "exec", dont_inherit=True), names={{**globals()}}'
    called = f"def {PROGRAM}(given, {arguments}):\n    return run_program(code, names, given)\n"
    return f"from typing import Any\n\n{inspect.getsource(run_program)}\n{called}"
