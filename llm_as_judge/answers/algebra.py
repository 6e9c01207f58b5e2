"""Equality of two formulas: numerical rejection, exact rational arithmetic, then proofs by sympy in worker processes,
which also run math-verify.

Formulas whose values differ at a few points are different. The rest is left to a few worker processes, started when
first needed. A proof has a limit of processor time (``PROOF_CPU_S``), so a busy machine does not change a verdict;
``effort`` limits all proofs for one answer. Formulas without a proof are not equal. Thread-safe.
"""

import atexit
import contextlib
import json
import logging
import os
import queue
import random
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from llm_as_judge.answers.formulas import Formula, approximate, exact, nodes, symbols
from llm_as_judge.errors import InfrastructureError

logger = logging.getLogger(__name__)

PROOF_CPU_S = 2.0
EFFORT_CPU_S = 5.0  # all proofs for one answer
VERIFY_CPU_S = 10.0  # math-verify on one answer
WORKERS = max(2, min(4, os.cpu_count() or 2))
_START_LIMIT_S = 60.0
_POINTS = 3
_REMEMBERED = 4096
_WORKER = Path(__file__).with_name("algebra_worker.py")


@dataclass
class Effort:
    """Processor seconds left for proofs; ``gave_up`` once a proof was wanted and not completed."""

    seconds: float
    gave_up: bool = False


_effort: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextlib.contextmanager
def effort(seconds: float = EFFORT_CPU_S) -> Iterator[Effort]:
    """Limit the proofs made inside; with 0 only what is already known counts as proved."""
    present = Effort(seconds)
    token = _effort.set(present)
    try:
        yield present
    finally:
        _effort.reset(token)


def equal(a: Formula, b: Formula) -> bool:
    """Tell whether two formulas are proved to have the same value for all values of their symbols."""
    if a == b:
        return True
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        return x == y
    matrices = all(any(node[0] == "mat" for node in nodes(tree)) for tree in (a, b))
    return (matrices or _agree(a, b)) and proved(a, b)


def _agree(a: Formula, b: Formula) -> bool:
    """Tell whether both have the same value at a few fixed points."""
    draw, names = random.Random(20), sorted(symbols(a) | symbols(b))
    for _ in range(_POINTS):
        at = {name: draw.uniform(0.3, 2.7) for name in names}
        x, y = approximate(a, at), approximate(b, at)
        if x is None or y is None or not abs(x - y) <= 1e-7 * max(1.0, abs(x), abs(y)):
            return False
    return True


class _Worker:
    """One process, used by one thread at a time. It ends with its input, and when a request takes too long."""

    process: Popen[bytes] | None = None
    ended = ""  # why the process gave no reply; empty if the request itself ended it

    def ask(self, request: Mapping[str, Any], cpu_s: float) -> tuple[bool | None, float]:
        """Tell whether it is the same (None: not decided), and the processor seconds used."""
        line: bytes | None = b""
        self.ended = ""
        try:
            if self.process is None:
                self._start()
            assert self.process is not None and self.process.stdin is not None
            self.process.stdin.write(json.dumps({**request, "cpu_s": cpu_s}).encode() + b"\n")
            self.process.stdin.flush()
            limit_s = 10 + 10 * cpu_s
            line = self._line(limit_s)
            if line is None:
                self.ended = f"no reply within {limit_s:g} s"
        except OSError as error:
            self.ended = str(error)
            logger.warning("the algebra process failed (%s); the formulas it was asked about are not accepted", error)
        if not line:
            self.stop()
            return None, cpu_s
        reply = json.loads(line)
        self.ended = reply.get("error", "")
        return reply["same"], float(reply["seconds"])

    def _start(self) -> None:
        # -I: neither the working directory nor the environment chooses what is imported
        command, env = [sys.executable, "-I", str(_WORKER)], {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env)
        if not self._line(_START_LIMIT_S):
            raise OSError(f"it did not start within {_START_LIMIT_S:g} s; is sympy installed?")

    def _line(self, limit_s: float) -> bytes | None:
        """Read one line of the process; empty if it has ended, None if the time is up."""
        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], limit_s)
        return self.process.stdout.readline() if ready else None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(OSError):  # unsent data has no reader any more
                self.process.communicate()
            self.process = None


_idle: queue.LifoQueue[_Worker] = queue.LifoQueue()  # the last used first: others may never start
for _ in range(WORKERS):
    _idle.put(_Worker())
_known: dict[tuple[Formula, Formula], bool] = {}


@atexit.register
def _close() -> None:
    while not _idle.empty():
        _idle.get().stop()


def proved(a: Formula, b: Formula) -> bool:
    """Tell whether sympy proves, within the effort that is left, that two formulas are equal."""
    left = _effort.get() or Effort(PROOF_CPU_S)
    if (known := _known.get((a, b))) is not None:
        return known
    limit = min(PROOF_CPU_S, left.seconds)
    if limit <= 0:
        left.gave_up = True
        return False
    worker = _idle.get()
    try:
        same, seconds = worker.ask({"a": a, "b": b}, limit)
    finally:
        _idle.put(worker)
    left.seconds -= seconds
    left.gave_up |= same is None
    if same is not None or limit == PROOF_CPU_S:  # a proof that used all its time would use it again
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[a, b] = bool(same)
    return bool(same)


def verified(reply: str, golds: Sequence[str]) -> bool:
    """Tell whether math-verify takes ``reply`` in ``VERIFY_CPU_S``; ``InfrastructureError`` if the process failed."""
    worker = _idle.get()
    try:
        same, _ = worker.ask({"reply": reply, "golds": list(golds)}, VERIFY_CPU_S)
        if same is None and worker.ended:
            raise InfrastructureError(f"math-verify could not be run: {worker.ended}")
        return bool(same)
    finally:
        _idle.put(worker)
