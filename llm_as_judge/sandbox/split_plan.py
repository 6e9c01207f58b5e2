"""How to run hidden tests: whether they can be separated from the solution, and whether they check changed arguments.

Only the tests and their prelude are read, never the solution: it must not influence how it is judged. Tests that use
more of the solution than calls of one function (its classes, its helpers, its output, object identities) cannot run in
their own process; their verdict is weak.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from llm_as_judge.answers.code import BUILTINS, names_in, names_of, quiet_parse
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.guest.plain_data import ATTRIBUTES

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GIVEN = ("__name__", "__file__")
#: Names that show that tests look beyond values: at output, at the function itself, into modules.
_BEYOND_VALUES = frozenset(("stdout", "stderr", "redirect_stdout", "redirect_stderr", "mock", "patch", "inspect"))


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """``obstacle`` says why the tests cannot be split, "" if they can."""

    obstacle: str
    modules: tuple[str, ...]  # standard modules that the tests use without importing them
    in_place: bool  # the tests look at changed arguments
    numpy: bool  # the tests import numpy, which only tests that run apart have

    def refuse_numpy(self, obstacle: str) -> None:
        """Raise ``DataError`` if tests that import numpy cannot be separated from the solution."""
        if self.numpy and obstacle:
            raise DataError(
                f"the tests import numpy, which only tests that run apart from the solution have, but {obstacle}; "
                "give the function plain values and look only at what it returns"
            )


@functools.lru_cache(maxsize=64)  # the rollouts of a group have the same tests
def plan(tests: str, prelude: str, entry_point: str) -> SplitPlan:
    """Plan a run of ``tests``; ``DataError`` if empty, not Python, of another style or without the function."""
    if not tests.strip():
        raise DataError(f"no tests for {entry_point!r}: a verdict without tests would pass anything")
    try:
        found = _Tests([*ast.walk(quiet_parse(tests))], entry_point)
        bound, loaded = names_of(tests)
        unbound = loaded - bound - names_of(prelude)[0] - {entry_point, *_GIVEN} - BUILTINS
    except SyntaxError as error:
        raise DataError(f"the tests of {entry_point!r} are not Python: {error}") from None
    modules = unbound & sys.stdlib_module_names
    unknown = ", ".join(sorted(unbound - modules))
    obstacle = f"the tests use {unknown} of the solution" if unknown else found.obstacle()
    numpy = any("numpy" in mentioned([node]) for node in found.nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    how = SplitPlan(obstacle, tuple(sorted(modules)), found.look_at_changes(), numpy)
    how.refuse_numpy(obstacle)
    return how


class _Tests:
    """The syntax tree of the tests.

    ``candidates`` are the names of the function and of helpers that return what it returns, ``returned`` those of what
    it returned or of a part of that.
    """

    def __init__(self, nodes: list[ast.AST], entry_point: str) -> None:
        self.nodes = nodes
        check = next((n for n in self.nodes if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
        arguments = [a.arg for a in check.args.args[:1]] if check and entry_point != "check" else []
        if check and entry_point != "check" and not arguments:
            raise DataError("check must take the function to test: def check(candidate)")
        if not {entry_point, *arguments} & mentioned(self.nodes):
            raise DataError(f"the tests of {entry_point!r} never use it: they would pass anything")
        self._refuse_uncalled(entry_point)
        self.candidates = _closure({entry_point, *arguments}, self._forwarding)
        self.returned = _closure(set(), self._bound_to_results)

    def _refuse_uncalled(self, entry_point: str) -> None:
        """Refuse functions that test and that only a runner (pytest, unittest) would call."""
        called = {"check", *mentioned(self.nodes)}
        for function in (node for node in self.nodes if isinstance(node, _FUNCTIONS)):
            name, body = function.name, [*ast.walk(function)]
            tests = entry_point in mentioned(body) or any(isinstance(node, ast.Assert) for node in body)
            if tests and name not in called and not name.startswith("__"):
                raise DataError(
                    f"line {function.lineno} of the tests: nothing calls {name}; write the tests as asserts, or as "
                    "asserts in check(candidate)"
                )

    def calls(self, node: ast.AST | None, names: set[str] | None = None) -> bool:
        """Tell whether ``node`` is a call of the function."""
        names = self.candidates if names is None else names
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names

    def _forwarding(self, names: set[str]) -> Iterator[str]:
        for node in self.nodes:
            match node:
                case ast.FunctionDef(name=name):
                    if any(isinstance(n, ast.Return) and self.calls(n.value, names) for n in ast.walk(node)):
                        yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    body = value.body if isinstance(value, ast.Lambda) else None
                    if self.calls(body, names) or (isinstance(value, ast.Name) and value.id in names):
                        yield name

    def _bound_to_results(self, names: set[str]) -> Iterator[str]:
        targets: list[ast.expr]
        value: ast.expr | None
        for node in self.nodes:
            match node:
                case ast.Assign():
                    targets, value = node.targets, node.value
                case ast.AnnAssign() | ast.NamedExpr() | ast.AugAssign():
                    targets, value = [node.target], node.value
                case ast.For() | ast.comprehension():
                    targets, value = [node.target], node.iter
                case _:
                    continue
            if value is not None and (_root(value) in names or any(map(self.calls, ast.walk(value)))):
                yield from names_in(*targets) - {"self"}

    def obstacle(self) -> str:
        """Say why the tests cannot be split; "" if they can."""
        for node in self.nodes:
            match node:
                case ast.Import() | ast.ImportFrom() if "solution" in mentioned([node]):
                    return "the tests import the solution"
                case ast.Await() | ast.AsyncFunctionDef() | ast.AsyncWith() | ast.AsyncFor():
                    return "the tests are asynchronous"
                case ast.Compare() if _compares_identities(node):
                    return "the tests compare identities"
                case ast.Call(func=function) if self.calls(function):
                    return "the tests call what the function returns"
                case ast.Attribute(attr=name) if (
                    name not in ATTRIBUTES and _root(node) in self.candidates | self.returned
                ):
                    return f"the tests look at .{name} of what the function returns"
                case ast.Attribute(value=ast.Name(id=name)) if name in self.candidates:
                    return "the tests look at the function itself"
        beyond = _BEYOND_VALUES & mentioned(self.nodes)
        return f"the tests use {', '.join(sorted(beyond))}" if beyond else ""

    def look_at_changes(self) -> bool:
        """Tell whether the tests check what the function did to its arguments.

        They do if they ignore a returned value, or assert something about an argument that is not compared with a
        returned value. ``assert f(x) == sorted(x)`` does not: a function that empties its argument must not pass.
        """
        if any(isinstance(node, ast.Expr) and self.calls(node.value) for node in self.nodes):
            return True
        given = self.candidates | self.returned
        shared = {name for node in self.nodes if self.calls(node) for name in names_in(node)} - given - BUILTINS

        def outside(node: ast.AST) -> set[str]:
            """Collect names outside of calls of the function."""
            if isinstance(node, ast.Call) and names_in(node.func) & given:
                return set()
            inner = {name for child in ast.iter_child_nodes(node) for name in outside(child)}
            return inner | {node.id} if isinstance(node, ast.Name) else inner

        for test in self._asserted():
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
            for side in sides:
                others = [other for other in sides if other is not side] or [test]
                if outside(side) & shared and not names_in(*others) & given:
                    return True
        return False

    def _asserted(self) -> Iterator[ast.expr]:
        """Yield conditions that are asserted, ``a and b`` as two."""
        tests = [n.test for n in self.nodes if isinstance(n, ast.Assert)]
        for test in tests:
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
                tests += test.values
            else:
                yield test


def _closure(names: set[str], more: Callable[[set[str]], Iterable[str]]) -> set[str]:
    """Return ``names`` and all that ``more`` finds from them."""
    while found := set(more(names)) - names:
        names = names | found
    return names


def _compares_identities(node: ast.Compare) -> bool:
    sides = (side.value if isinstance(side, ast.Constant) else "" for side in (node.left, *node.comparators))
    singletons = pairwise(side is None or type(side) is bool or side is ... for side in sides)
    return any(isinstance(o, (ast.Is, ast.IsNot)) and not any(s) for o, s in zip(node.ops, singletons, strict=True))


def _root(node: ast.AST) -> str | None:
    """Find the name that an expression of attributes, items and calls begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    """Collect names, attributes and imported names of the nodes themselves, not of those in them."""
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                parts = [alias.name for alias in aliases] + [getattr(node, "module", None) or ""]
                names.update(part for name in parts for part in name.split("."))
    return names
