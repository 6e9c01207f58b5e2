"""Whether two formulas are the same, decided where it cannot hang: floats refuse first, sympy proves in a process.

Two trees whose values differ at a few points differ. Rational arithmetic is exact here. The rest is asked of a few
worker processes that are started when first needed. A proof gets ``PROOF_CPU_S`` of processor time, so that a busy
machine does not change a verdict, and all proofs of one answer together what ``effort`` allows; what was not proved is
not the same. Thread-safe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
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
EFFORT_CPU_S = 5.0  # of all proofs for one answer
WORKERS = max(2, min(4, os.cpu_count() or 2))
_START_LIMIT_S = 60.0
_POINTS = 3
_REMEMBERED = 4096
_WORKER = Path(__file__).with_name("algebra_worker.py")


@dataclass
class Effort:
    """Processor seconds left for proofs; ``gave_up`` once a proof was wanted and not made to its end."""

    seconds: float
    gave_up: bool = False


_effort: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextlib.contextmanager
def effort(seconds: float = EFFORT_CPU_S) -> Iterator[Effort]:
    """Bounds the proofs made inside; with 0 only what is already known counts as proved."""
    present = Effort(seconds)
    token = _effort.set(present)
    try:
        yield present
    finally:
        _effort.reset(token)


def equal(a: Tree, b: Tree) -> bool:
    """Whether two formulas have the same value for all values of their symbols; True only when proved."""
    if a == b:
        return True
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        return x == y
    return (_agree(a, b) or (has_matrix(a) and has_matrix(b))) and _proved("equal", a, b)


def factor(a: Tree, b: Tree) -> float | None:
    """The number other than 0 that ``a`` is of ``b``, about; None where they are not proved to be proportional."""
    if symbols(a) != symbols(b) or not symbols(a):
        return None
    quotient = _quotient(a, b)
    return quotient if quotient and _proved("proportional", a, b) else None


def _points(a: Tree, b: Tree) -> list[dict[str, float]]:
    draw = random.Random(20)
    names = sorted(symbols(a) | symbols(b))
    return [{name: draw.uniform(0.3, 2.7) for name in names} for _ in range(_POINTS)]


def _agree(a: Tree, b: Tree) -> bool:
    for at in _points(a, b):
        x, y = approximate(a, at), approximate(b, at)
        if x is None or y is None or not abs(x - y) <= 1e-7 * max(1.0, abs(x), abs(y)):
            return False
    return True


def _quotient(a: Tree, b: Tree) -> float | None:
    """The real quotient where it is one and the same at every point."""
    quotients = []
    for at in _points(a, b):
        x, y = approximate(a, at), approximate(b, at)
        if x is None or y is None or not y:
            return None
        quotients.append(x / y)
    first = quotients[0]
    same = all(abs(q - first) <= 1e-6 * abs(first) for q in quotients)
    return first.real if same and abs(first.imag) <= 1e-9 * abs(first) else None


class _Worker:
    """One process and the pipe to it; used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: Kind, a: Tree, b: Tree, cpu_s: float) -> tuple[bool | None, float]:
        """Whether it is proved (None: not decided), and the processor seconds it took."""
        request = json.dumps({"kind": kind, "a": a, "b": b, "cpu_s": cpu_s})
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(10 + 10 * cpu_s)  # for what no signal interrupts
        except OSError as error:
            logger.warning("the algebra process failed (%s); formulas it was asked about are not accepted", error)
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
        """One line of the process; None when the time is up or the process has ended."""
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
                    with contextlib.suppress(OSError):  # what was still to be written has no reader any more
                        pipe.close()
            self._process = None


class _Pool:
    """The workers, those last used first, and what they found."""

    def __init__(self, size: int) -> None:
        self._all = [_Worker() for _ in range(size)]
        self._idle = list(self._all)
        self._free = threading.Condition()
        self._known: OrderedDict[tuple[Kind, Tree, Tree], bool] = OrderedDict()

    def proved(self, kind: Kind, a: Tree, b: Tree) -> bool:
        question, left = (kind, a, b), _effort.get() or Effort(PROOF_CPU_S)
        with self._free:
            if question in self._known:
                return self._known[question]
        limit = min(PROOF_CPU_S, left.seconds)
        if limit <= 0:
            left.gave_up = True
            return False
        with self._free:
            self._free.wait_for(lambda: bool(self._idle))
            worker = self._idle.pop()
        try:
            same, seconds = worker.ask(kind, a, b, limit)
        finally:
            with self._free:
                self._idle.append(worker)
                self._free.notify()
        left.seconds -= seconds
        left.gave_up |= same is None
        if same is not None or limit == PROOF_CPU_S:  # what had all its time would need it again
            with self._free:
                self._known[question] = bool(same)
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        return bool(same)

    def close(self) -> None:
        for worker in self._all:
            worker.stop()


_pool = _Pool(WORKERS)
atexit.register(_pool.close)


def _proved(kind: Kind, a: Tree, b: Tree) -> bool:
    return _pool.proved(kind, a, b)
