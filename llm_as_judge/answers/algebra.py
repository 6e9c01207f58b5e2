"""Whether two formulas are the same, decided where it cannot hang: floats refuse first, sympy proves in a process.

Two trees whose values differ at a few points differ. Rational arithmetic is exact here. The rest is asked of one worker
process that is started when first needed and killed after ``TIME_LIMIT_S``; what was not proved in time is not the
same. Thread-safe; one question at a time.
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
from functools import lru_cache
from pathlib import Path
from typing import Literal

from llm_as_judge.answers.expressions import Tree
from llm_as_judge.answers.numeric import approximate, exact, has_matrix, symbols

logger = logging.getLogger(__name__)

Kind = Literal["equal", "proportional"]

TIME_LIMIT_S = 5.0
_START_LIMIT_S = 60.0
_POINTS = 3
_WORKER = Path(__file__).with_name("algebra_worker.py")


def equal(a: Tree, b: Tree) -> bool:
    """Whether two formulas have the same value for all values of their symbols; True only when proved."""
    if a == b:
        return True
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        return x == y
    return (_agree(a, b) or (has_matrix(a) and has_matrix(b))) and _proved("equal", a, b)


def proportional(a: Tree, b: Tree) -> bool:
    """Whether the equations ``a = 0`` and ``b = 0`` differ by a constant factor only."""
    if symbols(a) != symbols(b) or not symbols(a) or not _same_quotient(a, b):
        return False
    return _proved("proportional", a, b)


def _points(a: Tree, b: Tree) -> list[dict[str, float]]:
    draw = random.Random(20)
    names = sorted(symbols(a) | symbols(b))
    return [{name: draw.uniform(0.3, 2.7) for name in names} for _ in range(_POINTS)]


def _agree(a: Tree, b: Tree) -> bool:
    for at in _points(a, b):
        x, y = approximate(a, at), approximate(b, at)
        if x is None or y is None or abs(x - y) > 1e-7 * max(1.0, abs(x), abs(y)):
            return False
    return True


def _same_quotient(a: Tree, b: Tree) -> bool:
    quotients = []
    for at in _points(a, b):
        x, y = approximate(a, at), approximate(b, at)
        if x is None or y is None or not y:
            return False
        quotients.append(x / y)
    return all(abs(q - quotients[0]) <= 1e-6 * abs(quotients[0]) for q in quotients)


class _Worker:
    """The process and the pipe to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, request: str, limit_s: float) -> bool:
        with self._lock:
            try:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                assert self._process is not None and self._process.stdin is not None
                self._process.stdin.write(request.encode() + b"\n")
                self._process.stdin.flush()
                line = self._line(limit_s)
            except OSError as error:
                logger.warning("the algebra process failed (%s); formulas it was asked about are not accepted", error)
                line = None
            if line is None:
                self._stop()
                return False
            return bool(json.loads(line)["same"])

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

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was still to be written has no reader any more
                        pipe.close()
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


_worker = _Worker()
atexit.register(_worker.close)


@lru_cache(maxsize=4096)
def _proved(kind: Kind, a: Tree, b: Tree) -> bool:
    return _worker.ask(json.dumps({"kind": kind, "a": a, "b": b}), TIME_LIMIT_S)
