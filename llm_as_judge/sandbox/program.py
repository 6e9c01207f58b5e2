"""Whole programs as functions: tests of a program call ``__main__(text)``, which is what it prints for that input."""

import inspect
from typing import Any

from llm_as_judge.answers.code import PROGRAM


def run_program(code: Any, names: dict[str, Any], given: str) -> str:
    """What a program prints, without spaces around it and its lines. Runs in the sandbox, sent as text."""
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
    for place, name, value in (
        (builtins, "open", opened), (io, "open", opened), (resource, "setrlimit", lambda *_: None),
        (os, "read", lambda n, size: standard[n].read(size) if n in (0, 1, 2) else posix.read(n, size)),
        (os, "write", lambda n, data: standard[n].write(data) if n in (0, 1, 2) else posix.write(n, data)),
        (os, "fstat", lambda n: posix.fstat(n) if n else about), (os, "_exit", sys.exit),
        (threading.Thread, "start", start), (threading.Thread, "join", lambda *_, **__: None),
    ):  # fmt: skip
        setattr(place, name, value)
    for name, number in ("stdin", 0), ("stdout", 1), ("stderr", 2):
        vars(sys)[name] = vars(sys)[f"__{name}__"] = opened(number, "w" if number else "r")
    program = types.ModuleType("__main__")
    program.__dict__.update(names, __name__="__main__", __file__="main.py", open=opened)
    sys.modules["__main__"], sys.argv = program, ["main.py"]
    with contextlib.suppress(SystemExit):
        exec(code, program.__dict__)
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    program.__dict__.clear()  # its own buffers are written when they are freed
    return "\n".join(map(str.strip, standard[1].getvalue().decode("utf-8", "replace").strip().split("\n")))


def as_function(source: str, entry_point: str) -> str:
    """``source``, or for a whole program the source of ``__main__``, which runs it anew at every call."""
    if entry_point != PROGRAM:
        return source
    arguments = f'code=compile({source!r}, "<snippet>", "exec", dont_inherit=True), names={{**globals()}}'
    called = f"def {PROGRAM}(given, {arguments}):\n    return run_program(code, names, given)\n"
    return f"from typing import Any\n\n{inspect.getsource(run_program)}\n{called}"
