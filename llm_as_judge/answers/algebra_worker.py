"""The algebra process: one JSON request per input line, one JSON reply per output line. Run as a file.

    {"kind": "equal" | "proportional", "a": tree, "b": tree, "cpu_s": 2.0}  ->  {"same": true, "seconds": 0.01}

Trees are those of ``expressions``. ``equal``: the difference is zero. ``proportional``: the quotient is a number other
than zero (two equations with everything on one side). Only what sympy proves is true; null means undecided within
``cpu_s`` of processor time. A second later the system ends the process, since arithmetic on big numbers ignores
signals.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any

_MEMORY = 2 << 30  # bytes of address space


def build(tree: Any) -> Any:
    """The sympy object of a tree."""
    import sympy

    kind, *parts = tree
    if kind == "num":
        return sympy.Rational(parts[0])
    if kind == "sym":
        return sympy.Symbol(parts[0])
    if kind == "pi":
        return sympy.pi
    if kind == "fn":
        name, argument = parts[0], build(parts[1])
        if name == "log":  # base unknown
            return sympy.Symbol("one over the logarithm of the base") * sympy.log(argument)
        names = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan"}
        return getattr(sympy, names.get(name, name))(argument)
    if kind == "call":
        return sympy.Function(parts[0])(*map(build, parts[1:]))
    if kind == "mat":
        return sympy.ImmutableMatrix([[build(cell) for cell in row] for row in parts])
    values = [build(part) for part in parts]
    a, b = values[0], values[-1]
    if kind == "add":
        for value in values[1:]:
            a = a + value
        return a
    operations = {
        "neg": lambda: -a,
        "mul": lambda: a * b,
        "div": lambda: a / b,
        "pow": lambda: a**b,
        "root": lambda: a ** (1 / b),
        "abs": lambda: abs(a),
        "mod": lambda: sympy.Mod(a, b),
        "binom": lambda: sympy.binomial(a, b),
        "factorial": lambda: sympy.factorial(a),
    }
    return operations[kind]()


def same(kind: str, a: Any, b: Any) -> bool:
    """Whether sympy proves it."""
    import sympy

    x, y = build(a), build(b)
    if isinstance(x, sympy.MatrixBase) or isinstance(y, sympy.MatrixBase):
        if not (isinstance(x, sympy.MatrixBase) and isinstance(y, sympy.MatrixBase)) or x.shape != y.shape:
            return False
        return all(_zero(cell) for cell in x - y)
    for value in (x, y):
        if value.has(sympy.zoo, sympy.nan, sympy.oo):
            return False
    if kind == "equal":
        return _zero(x - y)
    if x.is_number or y.is_number or x == 0 or y == 0:
        return False
    quotient = sympy.simplify(x / y)
    return bool(quotient.is_number and quotient.is_finite and not _zero(quotient))


def _zero(difference: Any) -> bool:
    import sympy

    if difference == 0:
        return True
    if difference.is_number and abs(sympy.N(difference, 30)) > 1e-15:
        return False
    if sympy.simplify(difference) == 0 or sympy.expand(difference) == 0:
        return True
    return bool(difference.is_number and sympy.minimal_polynomial(difference, sympy.Symbol("x")) == sympy.Symbol("x"))


class OutOfTime(BaseException):  # sympy catches every Exception here and there
    """The processor time for one question is used up."""


def out_of_time(signum: int, frame: object) -> None:
    raise OutOfTime


def main() -> None:
    signal.signal(signal.SIGVTALRM, out_of_time)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > _MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    import sympy  # noqa: F401  (paid once, before the first request is timed)

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        answer: bool | None = None
        try:
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (int(began + request["cpu_s"]) + 2, hard))
            signal.setitimer(signal.ITIMER_VIRTUAL, request["cpu_s"])
            try:
                answer = same(request["kind"], request["a"], request["b"])
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except OutOfTime:
            answer = None
        except Exception:  # sympy raises all kinds of errors; what it cannot prove is not accepted
            answer = False
        sys.stdout.write(json.dumps({"same": answer, "seconds": time.process_time() - began}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
