"""The algebra process: one JSON request per input line, one JSON reply per output line. Run as a file.

    {"a": tree, "b": tree, "cpu_s": 2.0}                   ->  {"same": true, "seconds": 0.01}
    {"reply": text, "golds": [latex, ...], "cpu_s": 10.0}  ->  the same, decided by math-verify

Trees are those of ``formulas``. Only what sympy proves is the same. A request that takes more processor time than
``cpu_s`` ends the process, because some of sympy cannot be interrupted in another way.
"""

import importlib
import json
import operator
import resource
import signal
import sys
import time
from typing import Any

import sympy

_MEMORY = 2 << 30  # bytes of address space
_NAMES = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_LOG_BASE = sympy.Symbol("one over the logarithm of the base")  # of a log without base
_OPERATIONS = {
    "pi": lambda: sympy.pi,
    "add": lambda *parts: sum(parts[1:], parts[0]),
    "neg": operator.neg,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
    "root": lambda a, b: a ** (1 / b),
    "abs": abs,
    "mod": sympy.Mod,
    "binom": sympy.binomial,
    "factorial": sympy.factorial,
    "row": lambda *cells: cells,
    "mat": lambda *rows: sympy.ImmutableMatrix(rows),
}


def build(tree: Any) -> Any:
    kind, *parts = tree
    if kind == "num":
        return sympy.Rational(parts[0])
    if kind == "sym":
        return sympy.Symbol(parts[0])
    if kind == "fn":
        name, argument = parts[0], build(parts[1])
        return _LOG_BASE * sympy.log(argument) if name == "log" else getattr(sympy, _NAMES.get(name, name))(argument)
    return _OPERATIONS[kind](*map(build, parts))


def same(a: Any, b: Any) -> bool:
    x, y = build(a), build(b)
    if isinstance(x, sympy.MatrixBase) and isinstance(y, sympy.MatrixBase):
        return x.shape == y.shape and all(_zero(cell) for cell in x - y)
    return not any(value.has(sympy.zoo, sympy.nan, sympy.oo) for value in (x, y)) and _zero(x - y)


def _zero(difference: Any) -> bool:
    if difference == 0:
        return True
    if difference.is_number and abs(sympy.N(difference, 30)) > 1e-15:
        return False
    if sympy.simplify(difference) == 0 or sympy.expand(difference) == 0:
        return True
    return bool(difference.is_number and sympy.minimal_polynomial(difference, sympy.Symbol("x")) == sympy.Symbol("x"))


def verify(reply: str, golds: list[str]) -> bool:
    """Tell whether math-verify takes the reply for one of ``golds``; its limits on wall-clock time are not used."""
    math_verify: Any = importlib.import_module("math_verify")
    said = math_verify.parse(reply, parsing_timeout=None)
    wanted = (math_verify.parse(rf"\boxed{{{gold}}}", parsing_timeout=None) for gold in golds)
    return any(math_verify.verify(gold, said, timeout_seconds=None) for gold in wanted)


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > _MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, hard))
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "reply" in request:
            try:
                importlib.import_module("math_verify")  # before the clock starts
            except ImportError as error:
                print(json.dumps({"same": None, "seconds": 0.0, "error": f"{error}"}), flush=True)
                continue
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])  # SIGPROF, which nothing handles, ends the process
        try:
            compared = "reply" in request
            answer = verify(request["reply"], request["golds"]) if compared else same(request["a"], request["b"])
        except Exception:  # sympy raises all kinds of errors; what it cannot prove is not accepted
            answer = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"same": answer, "seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
