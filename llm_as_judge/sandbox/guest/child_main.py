"""Entry point of a forked child: receives one job from the host, runs it, sends one result and exits.

It shares its process with hostile code, so the host believes nothing that it sends. Standard library only.
"""

import builtins
import io
import json
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import frames, verdict_jobs, workflow_job
from llm_as_judge.sandbox.guest.runtime import Connection, defined, describe, execute, finished


def main(sock: socket.socket, output_bytes: int, frame_bytes: int) -> NoReturn:
    sock.sendall(frames.CONFINED)
    host = Connection(sock, frame_bytes)
    job = host.receive()
    output = Output(output_bytes, host)
    writer = io.TextIOWrapper(output, "utf-8", errors="backslashreplace", write_through=True)
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = writer  # type: ignore[misc]
    sys.stdin = io.StringIO()
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as without python -S
    try:
        end = _JOBS[job["kind"]](host, job)
    except MemoryError:
        end = {"end": "memory", "error": "MemoryError"}
    except BaseException as error:  # foreign code may also raise SystemExit or KeyboardInterrupt
        end = {"end": "raised", "error": describe(error)}
    host.finish({**end, "stdout": output.getvalue().decode("utf-8", "replace")})


class Output(io.BytesIO):
    """Collects what the code prints; ends the process at the limit."""

    def __init__(self, limit: int, host: Connection) -> None:
        super().__init__()
        self._limit = limit
        self._host = host

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._limit:
            self._host.finish({"end": "output_limit", "error": f"printed over {self._limit} bytes"})
        return super().write(data)


def run_code(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Execute ``source``; with ``call``, return the value of that function called with ``args``: as it is if it
    survives JSON unchanged, otherwise its ``str()``.
    """
    call = job["call"]
    namespace = execute(job["source"], "solution" if call else "__main__", job.get("prelude", ""))
    value = finished(defined(namespace, call)(*job["args"])) if call else None
    try:
        unchanged = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        unchanged = False
    return {"end": "finished", "value": value if unchanged else str(value)}


_JOBS: dict[str, Callable[[Connection, dict[str, Any]], dict[str, Any]]] = {
    "code": run_code,
    "workflow": workflow_job.run,
    "solution": verdict_jobs.serve_solution,
    "split tests": verdict_jobs.test_apart,
    "tests": verdict_jobs.test_together,
}
