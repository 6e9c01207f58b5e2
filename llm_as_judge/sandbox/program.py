"""Whole programs as functions: ``__main__(text)`` runs one with ``text`` as input and returns what it prints."""

import inspect
from typing import Any

from llm_as_judge.answers.code import PROGRAM


def run_program(code: Any, names: dict[str, Any], given: str) -> str:
    """Return what a program prints, without spaces around it and its lines. Runs in the sandbox, sent as text."""
    import atexit
    import builtins
    import contextlib
    import io
    import os
    import posix
    import resource
    import sys
    import threading
    import types
    from _io import open as real_open
    from unittest import mock

    class Stream(io.BytesIO):
        """A standard stream, never closed. Its descriptor leads nowhere: what opens or uses it by number is below."""

        def fileno(self) -> int:
            return int(standard.index(self))

        raw, close = property(lambda self: self), fileno  # type: ignore[assignment]

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        number = {"/dev/stdin": 0, "/dev/stdout": 1}.get(str(file), file)
        if number not in (0, 1, 2):
            return real_open(file, mode, *args, **kwargs)
        if "b" in mode:
            return standard[number]
        text: Any = io.TextIOWrapper(standard[number], "utf-8", "replace", write_through=True)
        text.mode = mode
        return text

    def start(thread: threading.Thread) -> None:  # the sandbox has no threads
        with contextlib.suppress(SystemExit):
            thread.run()

    standard: Any = [Stream(given.encode("utf-8", "replace")), Stream(), Stream()]
    about = os.stat_result((0o100444, 0, 0, 1, 0, 0, len(standard[0].getvalue()), 0, 0, 0))
    changes: list[tuple[Any, str, Any]] = [
        (builtins, "open", opened), (io, "open", opened), (resource, "setrlimit", lambda *_: None),
        (os, "read", lambda n, size: standard[n].read(size) if n in (0, 1, 2) else posix.read(n, size)),
        (os, "write", lambda n, data: standard[n].write(data) if n in (0, 1, 2) else posix.write(n, data)),
        (os, "fstat", lambda n: posix.fstat(n) if n else about), (os, "_exit", sys.exit), (sys, "argv", ["main.py"]),
        (threading.Thread, "start", start), (threading.Thread, "join", lambda *_, **__: None),
    ]  # fmt: skip
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        changes += [(sys, each, opened(number, "w" if number else "r")) for each in (name, f"__{name}__")]
    program = types.ModuleType("__main__")
    program.__dict__.update(names, __name__="__main__", __file__="main.py", open=opened)
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(mock.patch.object(*change))
        stack.callback(sys.modules.update, {"__main__": sys.modules["__main__"]})
        sys.modules["__main__"] = program
        with contextlib.suppress(SystemExit):
            exec(code, program.__dict__)
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    program.__dict__.clear()  # its own buffers are written when they are freed
    return "\n".join(map(str.strip, standard[1].getvalue().decode("utf-8", "replace").strip().split("\n")))


def as_function(source: str, entry_point: str) -> str:
    """Return ``source`` with what defines ``entry_point``: ``__main__``, which runs a whole program anew at every call,
    or for a method of ``class Solution``, as on LeetCode, a function that calls it on a new object.
    """
    if entry_point != PROGRAM:
        found = f"if {entry_point!r} not in globals() and hasattr(globals().get('Solution'), {entry_point!r}):"
        called = f"def {entry_point}(*values):\n        return Solution().{entry_point}(*values)"
        return f"{source}\n\n{found}\n    {called}" if "class Solution" in source else source
    arguments = f'code=compile({source!r}, "<snippet>", "exec", dont_inherit=True), names={{**globals()}}'
    called = f"def {PROGRAM}(given, {arguments}):\n    return run_program(code, names, given)\n"
    return f"from typing import Any\n\n{inspect.getsource(run_program)}\n{called}"
