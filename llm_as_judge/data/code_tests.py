"""Checks of a code problem's tests when the problem is read, before any solution is judged.

Whether the tests also pass a function that does nothing is found by running them (``assembly.check``).
"""

import ast
import builtins
import re
from collections import Counter
from functools import lru_cache

from llm_as_judge.answers.code import is_name, names_of, quiet_parse
from llm_as_judge.data.record import short
from llm_as_judge.errors import DataError
from llm_as_judge.files import LONGEST_SOURCE
from llm_as_judge.sandbox.split_plan import mentioned, plan

#: Packed data are one value in the syntax tree, whose memory the limit is for.
_PACKED = re.compile(r'"[A-Za-z0-9+/=]{1000,}"')
_DEFINED = re.compile(r"^def (\w+)", re.MULTILINE)


@lru_cache(maxsize=1 << 14)  # a mix repeats its few code problems thousands of times
def check_tests(tests: str, entry_point: str, prelude: str, public_tests: tuple[str, ...]) -> None:
    """Raise ``DataError`` if ``tests`` are neither asserts nor ``def check(candidate)``, or a public test is not a
    single assert on the function.
    """
    if not is_name(entry_point):
        raise DataError(f"field 'entry_point' must be the name of a function, got {short(entry_point)}")
    syntax_tree("prelude", prelude)
    syntax_tree("tests", tests)
    try:
        plan(tests, prelude, entry_point)
    except DataError as error:
        raise DataError(f"field 'tests': {error}") from None
    for test in public_tests:
        body = syntax_tree("public_tests", test).body
        if len(body) != 1 or not isinstance(body[0], ast.Assert) or entry_point not in mentioned(ast.walk(body[0])):
            raise DataError(f"field 'public_tests' must hold single asserts on {entry_point}, got {short(test)}")


def tested_function(tests: str, code: str = "") -> str:
    """Find the one function that every assert of ``tests`` calls and that the tests do not define, of several one of
    ``code``. Raises ``DataError`` if there is not exactly one.
    """
    tree = syntax_tree("tests", tests)
    bound, _ = names_of(tests)
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    called = Counter[str]()
    for node in asserts:
        called.update({n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)})
    names, own = [n for n, count in called.items() if count == len(asserts) and n not in bound], _DEFINED.findall(code)
    names = [name for name in names if name in own] or [name for name in names if not hasattr(builtins, name)]
    if len(names) != 1:
        calls = f"call {' and '.join(sorted(names))}" if names else "call no function of the solution in every assert"
        raise DataError(f"field 'entry_point' is missing, the function's name, and the tests {calls}")
    return names[0]


def syntax_tree(field: str, source: str) -> ast.Module:
    """Parse ``source``, tests without packed data. Raises ``DataError`` that names ``field``."""
    try:
        return quiet_parse(_PACKED.sub('""', source) if field == "tests" else source, LONGEST_SOURCE)
    except SyntaxError as error:
        raise DataError(f"field {field!r} is not Python in line {error.lineno or 1}: {error.msg}") from None
