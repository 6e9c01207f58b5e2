"""What a forked child does: read one job from the host, run it, send one result, exit.

Runs beside hostile code: nothing it sends is believed beyond the run it belongs to. Standard library only.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import random
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import frames, verdict, workflow
from llm_as_judge.sandbox.guest.connection import Connection
from llm_as_judge.sandbox.guest.snippet import describe, execute


def main(sock: socket.socket, output_bytes: int, frame_bytes: int) -> NoReturn:
    """Run the job that the host sends; never returns."""
    output, writer = _OUTPUT, _WRITER
    sock.sendall(frames.CONFINED)
    random.seed()
    host = Connection(sock, frame_bytes)
    job = host.receive()
    output.attach(output_bytes, host)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = writer  # type: ignore[misc]
    sys.stdin = io.StringIO(job.get("stdin") or "")
    try:
        end = _KINDS[job["kind"]](host, job)
    except MemoryError:
        end = {"end": "memory", "error": "MemoryError"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the code's doing too
        end = {"end": "raised", "error": describe(error)}
    host.finish({**end, "stdout": output.text()})


def rehearse() -> None:
    """In the zygote: go through a run's motions until the interpreter has specialised them.

    It does so by writing into the code, which in a child would each time copy the pages it is in.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        host, child = Connection(ours, 0), Connection(theirs, 0)
        for _ in range(30):
            host.send({"kind": "code", "source": "", "args": [1.5, None, "x"]})
            child.receive()
            output = Output()
            output.attach(1_000, child)
            writer = output.writer()  # which closes the output with itself
            print("x", file=writer)
            namespace = execute("import math\nclass C: pass\ndef f(x):\n    return [i for i in range(x)]\n", "solution")
            frames.encode({"end": "finished", "value": plain(namespace["f"](3)), "stdout": output.text()})
    del sys.modules["solution"]
    for _ in range(10):
        workflow.LOOP.run_until_complete(_waiting(workflow.LOOP))


async def _waiting(loop: asyncio.AbstractEventLoop) -> None:
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(future.set_result, None)
    await asyncio.gather(future, asyncio.sleep(0))


class Output(io.BytesIO):
    """What the code prints; ends the process when it is too much."""

    _limit = 0
    _host: Connection

    def attach(self, limit: int, host: Connection) -> None:
        self._limit = limit
        self._host = host

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._limit:
            self._host.finish({"end": "output_limit", "error": f"printed over {self._limit} bytes"})
        return super().write(data)

    def writer(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self, "utf-8", errors="backslashreplace", write_through=True)

    def text(self) -> str:
        return self.getvalue().decode("utf-8", "replace")


#: Made before the fork, of which every child has a copy of its own.
_OUTPUT = Output()
_WRITER = _OUTPUT.writer()


def run_code(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
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


def run_workflow(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    return {"end": "finished", "answer": workflow.run(host, job)}


_KINDS: dict[str, Callable[[Connection, dict[str, Any]], dict[str, Any]]] = {
    "code": run_code,
    "tests": verdict.test_together,
    "workflow": run_workflow,
    "solution": verdict.serve,
    "split tests": verdict.test_apart,
}


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
