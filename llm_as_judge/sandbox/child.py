"""What a forked child does: read one job from the host, run it, send one result, exit.

Runs beside hostile code: nothing it sends is believed beyond the run it belongs to. Standard library only.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import random
import socket
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from llm_as_judge.sandbox import child_tests, child_workflow, frames

FILENAME = "<snippet>"
_MESSAGE_LIMIT = 500


def main(sock: socket.socket) -> NoReturn:
    """Run the job that the host sends; never returns."""
    output, writer = _OUTPUT, _WRITER
    sock.sendall(frames.CONFINED)
    random.seed()
    job = frames.receive(sock)
    output.attach(job["output_bytes"], sock)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = writer  # type: ignore[misc]
    sys.stdin = io.StringIO(job.get("stdin") or "")
    try:
        end = _KINDS[job["kind"]](sock, job)
    except MemoryError:
        end = {"end": "memory", "error": "MemoryError"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the code's doing too
        end = {"end": "raised", "error": describe(error)}
    finish(sock, {**end, "stdout": output.text()}, job["frame_bytes"])


def rehearse() -> None:
    """In the zygote: go through a run's motions until the interpreter has specialised them.

    It does so by writing into the code, which in a child would each time copy the pages it is in.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(30):
            frames.send(ours, {"kind": "code", "source": "", "args": [1.5, None, "x"]})
            frames.receive(theirs)
            output = Output()
            output.attach(1_000, ours)
            writer = output.writer()  # which closes the output with itself
            print("x", file=writer)
            namespace = execute("import math\nclass C: pass\ndef f(x):\n    return [i for i in range(x)]\n", "solution")
            frames.encode({"end": "finished", "value": plain(namespace["f"](3)), "stdout": output.text()})
    del sys.modules["solution"]
    for _ in range(10):
        child_workflow.LOOP.run_until_complete(_waiting(child_workflow.LOOP))


async def _waiting(loop: asyncio.AbstractEventLoop) -> None:
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(future.set_result, None)
    await asyncio.gather(future, asyncio.sleep(0))


def finish(sock: socket.socket, end: dict[str, Any], frame_bytes: int) -> NoReturn:
    """Send the result and leave without running anything more of the code's (atexit, destructors, tasks)."""
    try:
        data = frames.encode(end)
    except (TypeError, ValueError, RecursionError) as error:
        data = frames.encode({"end": "raised", "error": describe(error)})
    if len(data) > frame_bytes:
        data = frames.encode({"end": "output_limit", "error": f"the result takes over {frame_bytes} bytes"})
    sock.setblocking(True)
    sock.sendall(data)
    os._exit(0)


class Output(io.BytesIO):
    """What the code prints; ends the process when it is too much."""

    _limit = 0
    _sock: socket.socket

    def attach(self, limit: int, sock: socket.socket) -> None:
        self._limit = limit
        self._sock = sock

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._limit:
            finish(self._sock, {"end": "output_limit", "error": f"printed over {self._limit} bytes"}, 1 << 16)
        return super().write(data)

    def writer(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self, "utf-8", errors="backslashreplace", write_through=True)

    def text(self) -> str:
        return self.getvalue().decode("utf-8", "replace")


#: Made before the fork, of which every child has a copy of its own.
_OUTPUT = Output()
_WRITER = _OUTPUT.writer()


def run_code(sock: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
    """Execute ``source``; with ``call``, the value of that function called with ``args``."""
    call = job["call"]
    namespace = execute(job["source"], "solution" if call else "__main__")
    if not call:
        return {"end": "finished", "value": None}
    if call not in namespace:
        raise NameError(f"name {call!r} is not defined")
    value = namespace[call](*job["args"])
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    return {"end": "finished", "value": plain(value)}


def run_tests(sock: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
    """Execute the solution, then fetch and execute the tests in a copy of its namespace.

    Only code that ran past the last test knows the nonce it must report; a solution that exits, or that looks
    before it is called, does not. One that searches the interpreter's frames when called can find it: hence
    the verdict is weak.
    """
    namespace = execute(job["source"], "solution")
    tests = frames.receive(sock)
    scope = dict(namespace)
    exec(compile(tests["source"], "<tests>", "exec", dont_inherit=True), scope)
    if scope.get("check") is not namespace.get("check"):  # the tests' own, not a solution called so
        if job["entry_point"] not in namespace:
            raise NameError(f"name {job['entry_point']!r} is not defined")
        scope["check"](namespace[job["entry_point"]])
    return {"end": "finished", "nonce": tests["nonce"]}


def run_workflow(sock: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
    return {"end": "finished", "answer": child_workflow.run(sock, job, execute)}


def serve_solution(sock: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
    child_tests.serve(sock, job, execute)


def run_split_tests(sock: socket.socket, job: dict[str, Any]) -> dict[str, Any]:
    return child_tests.test(sock, job, execute, finish)


_KINDS: dict[str, Callable[[socket.socket, dict[str, Any]], dict[str, Any]]] = {
    "code": run_code,
    "tests": run_tests,
    "workflow": run_workflow,
    "solution": serve_solution,
    "split tests": run_split_tests,
}


def execute(source: str, name: str) -> dict[str, Any]:
    """Execute ``source`` as a module of that name and return its namespace."""
    module = types.ModuleType(name)
    module.__dict__.update(child_workflow.NAMESPACE)
    if "." in name:
        module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def plain(value: Any) -> Any:
    """``value`` if JSON gives back the same, else its ``str``."""
    return value if _is_json(value, 0) else str(value)


def _is_json(value: Any, depth: int) -> bool:
    if value is None or type(value) in (bool, float, str):
        return True
    if type(value) is int:
        return abs(value) < 1 << 64
    if depth > 50:
        return False
    if type(value) is list:
        return all(_is_json(item, depth + 1) for item in value)
    if type(value) is dict:
        return all(type(key) is str and _is_json(item, depth + 1) for key, item in value.items())
    return False


def describe(error: BaseException) -> str:
    """``Type: message (line N)``, N being the last line of the snippet on the way to the error."""
    try:
        message = str(error)[:_MESSAGE_LIMIT]
    except BaseException as second:
        message = f"<str() raised {type(second).__name__}>"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILENAME]
    if lines and not isinstance(error, SyntaxError):
        text += f" (line {lines[-1]})"
    return text
