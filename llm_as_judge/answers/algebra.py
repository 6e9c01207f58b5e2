"""Equality of two formulas: floats refuse, exact rational arithmetic decides, sympy proves in worker processes.

Two formulas whose values differ at a few points are different. The rest is proved by a few processes, started when
first needed. A proof gets ``PROOF_CPU_S`` of processor time, so a busy machine does not change a verdict; all proofs
for one answer get what ``effort`` allows. What is not proved is not equal. Thread-safe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import queue
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llm_as_judge.answers.expressions import Tree
from llm_as_judge.answers.numeric import approximate, exact, has_matrix, symbols

logger = logging.getLogger(__name__)

Kind = Literal["equal", "proportional"]

PROOF_CPU_S = 2.0
EFFORT_CPU_S = 5.0  # all proofs for one answer
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


def equal(a: Tree, b: Tree) -> bool:
    """Whether two formulas are proved to have the same value for all values of their symbols."""
    if a == b:
        return True
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        return x == y
    return (_agree(a, b) or (has_matrix(a) and has_matrix(b))) and _proved("equal", a, b)


def factor(a: Tree, b: Tree) -> float | None:
    """``a / b`` if it is proved to be a number other than 0, approximately; else None."""
    if symbols(a) != symbols(b) or not symbols(a):
        return None
    quotient = _quotient(a, b)
    return quotient if quotient and _proved("proportional", a, b) else None


def _values(a: Tree, b: Tree) -> Iterator[tuple[complex | None, complex | None]]:
    """Both values at a few fixed points."""
    draw = random.Random(20)
    names = sorted(symbols(a) | symbols(b))
    for _ in range(_POINTS):
        at = {name: draw.uniform(0.3, 2.7) for name in names}
        yield approximate(a, at), approximate(b, at)


def _agree(a: Tree, b: Tree) -> bool:
    return all(
        x is not None and y is not None and abs(x - y) <= 1e-7 * max(1.0, abs(x), abs(y)) for x, y in _values(a, b)
    )


def _quotient(a: Tree, b: Tree) -> float | None:
    """The real quotient if it is the same at every point."""
    quotients = [x / y for x, y in _values(a, b) if x is not None and y]
    if len(quotients) < _POINTS:
        return None
    first = quotients[0]
    same = all(abs(q - first) <= 1e-6 * abs(first) for q in quotients)
    return first.real if same and abs(first.imag) <= 1e-9 * abs(first) else None


class _Worker:
    """One process and the pipe to it, used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: Kind, a: Tree, b: Tree, cpu_s: float) -> tuple[bool | None, float]:
        """Whether it is proved (None: not decided), and the processor seconds used."""
        request = json.dumps({"kind": kind, "a": a, "b": b, "cpu_s": cpu_s})
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(10 + 10 * cpu_s)  # some of sympy cannot be interrupted by a signal
        except OSError as error:
            logger.warning("the algebra process failed (%s); the formulas it was asked about are not accepted", error)
            line = None
        if line is None:
            self.stop()
            return None, cpu_s
        reply = json.loads(line)
        return reply["same"], float(reply["seconds"])

    def _start(self) -> None:
        # -I: neither the working directory nor the environment chooses what is imported
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        if self._line(_START_LIMIT_S) is None:
            raise OSError(f"it did not start within {_START_LIMIT_S:g} s; is sympy installed?")

    def _line(self, limit_s: float) -> bytes | None:
        """One line of the process; None if the time is up or the process has ended."""
        assert self._process is not None and self._process.stdout is not None
        descriptor, end, got = self._process.stdout.fileno(), time.monotonic() + limit_s, b""
        while not got.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            part = os.read(descriptor, 65536) if ready else b""
            if not part:
                return None
            got += part
        return got

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # unsent data has no reader any more
                        pipe.close()
            self._process = None


_workers = [_Worker() for _ in range(WORKERS)]
_idle: queue.LifoQueue[_Worker] = queue.LifoQueue()  # the last used first: others may never start
for _worker in _workers:
    _idle.put(_worker)
_known: dict[tuple[Kind, Tree, Tree], bool] = {}


@atexit.register
def _close() -> None:
    for worker in _workers:
        worker.stop()


def _proved(kind: Kind, a: Tree, b: Tree) -> bool:
    question, left = (kind, a, b), _effort.get() or Effort(PROOF_CPU_S)
    if (known := _known.get(question)) is not None:
        return known
    limit = min(PROOF_CPU_S, left.seconds)
    if limit <= 0:
        left.gave_up = True
        return False
    worker = _idle.get()
    try:
        same, seconds = worker.ask(kind, a, b, limit)
    finally:
        _idle.put(worker)
    left.seconds -= seconds
    left.gave_up |= same is None
    if same is not None or limit == PROOF_CPU_S:  # a proof that used all its time would use it again
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[question] = bool(same)
    return bool(same)
