"""How to run hidden tests: whether they can be separated from the solution, and which of them need to be called.

Only the tests and their prelude are read, never the solution: it must not influence how it is judged. Tests that use
more of the solution than calls of one function (its classes, its helpers, its output, object identities) cannot run in
a process of their own; their verdict is weak.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.guest.values import ATTRIBUTES

_BUILTINS = frozenset(dir(builtins))
#: Names that show that tests look beyond values: at output, at the function itself, into modules.
_BEYOND_VALUES = frozenset(
    ("stdout", "stderr", "redirect_stdout", "redirect_stderr", "capsys", "mock", "patch", "monkeypatch", "inspect")
)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """``obstacle`` says why the tests cannot be split, "" if they can."""

    obstacle: str = ""
    modules: tuple[str, ...] = ()  # standard modules that the tests use without importing them
    in_place: bool = False  # the tests look at changed arguments
    collected: tuple[str, ...] = ()  # test functions and classes that the tests define but do not call


@functools.lru_cache(maxsize=64)  # the rollouts of a group have the same tests
def plan(tests: str, prelude: str, entry_point: str) -> SplitPlan:
    """Raises ``DataError`` for tests that are empty, not Python, or never use the function."""
    if not tests.strip():
        raise DataError(f"no tests for {entry_point!r}: a verdict without tests would pass anything")
    try:
        return _Tests(quiet_parse(tests), quiet_parse(prelude), entry_point).plan()
    except SyntaxError as error:
        raise DataError(f"the tests of {entry_point!r} are not Python: {error}") from None


class _Tests:
    """The syntax tree of the tests, with the names that stand for the function (``candidates``)."""

    def __init__(self, tree: ast.Module, prelude: ast.Module, entry_point: str) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.candidates = {entry_point}
        functions = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef)}
        if "check" in functions and entry_point != "check":
            self.candidates.update(argument.arg for argument in functions["check"].args.args[:1])
        elif entry_point not in _mentioned(self.nodes):
            raise DataError(f"the tests of {entry_point!r} never use it: they would pass anything")
        loaded = {n.id for n in self.nodes if isinstance(n, ast.Name)}
        self.unbound = loaded - bound_names(tree) - bound_names(prelude) - _BUILTINS - {entry_point, "__name__"}
        self.bindings = list(self._bindings())
        while more := set(self._forwarding()) - self.candidates:
            self.candidates |= more
            self.bindings = list(self._bindings())
        self.returned: set[str] = set()  # names of what the function returned, or of a part of it
        while (
            more := {n for b in self.bindings if b.calls or b.root in self.returned for n in b.targets} - self.returned
        ):
            self.returned |= more

    def plan(self) -> SplitPlan:
        modules = self.unbound & sys.stdlib_module_names
        obstacle = self._obstacle(self.unbound - modules)
        return SplitPlan(obstacle, tuple(sorted(modules)), self._look_at_changes(), tuple(_collected(self.tree)))

    def calls(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.candidates

    def _forwarding(self) -> Iterator[str]:
        """Names that the tests give to the function, or to a helper that returns what it returns."""
        for node in self.nodes:
            match node:
                case ast.FunctionDef(name=name):
                    returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
                    if any(value is not None and self.calls(value) for value in returned):
                        yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)) if other in self.candidates:
                    yield name
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=body)) if self.calls(body):
                    yield name

    def _bindings(self) -> Iterator[_Binding]:
        for node in self.nodes:
            value: ast.AST | None = None
            targets: list[ast.AST] = []
            if isinstance(node, ast.Assign):
                targets, value = list(node.targets), node.value
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
                targets, value = [node.target], node.value
            elif isinstance(node, (ast.For, ast.comprehension)):
                targets, value = [node.target], node.iter
            if value is not None:
                bound = _names(*targets) - {"self"}
                calls = any(self.calls(inner) for inner in ast.walk(value))
                yield _Binding(bound, (_names(value) | bound) - _BUILTINS, _root(value), calls)

    def _obstacle(self, unknown: set[str]) -> str:
        if unknown:
            return f"the tests use {', '.join(sorted(unknown))} of the solution"
        for node in self.nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "solution" in _imported(node):
                return "the tests import the solution"
            if isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncWith, ast.AsyncFor)):
                return "the tests are asynchronous"
            if isinstance(node, ast.Compare) and _compares_identities(node):
                return "the tests compare identities"
            if isinstance(node, ast.Call) and self.calls(node.func):
                return "the tests call what the function returns"
            if isinstance(node, ast.Attribute):
                if node.attr not in ATTRIBUTES and _root(node) in self.candidates | self.returned:
                    return f"the tests look at .{node.attr} of what the function returns"
                if isinstance(node.value, ast.Name) and node.value.id in self.candidates:
                    return "the tests look at the function itself"
        beyond = _BEYOND_VALUES & _mentioned(self.nodes)
        return f"the tests use {', '.join(sorted(beyond))}" if beyond else ""

    def _look_at_changes(self) -> bool:
        """Whether the tests look at what the function did to its arguments.

        They do if they ignore a returned value, or assert something about an argument that is not compared with a
        returned value. ``assert f(x) == sorted(x)`` does not: a function that empties its argument must not pass.
        """
        if any(isinstance(node, ast.Expr) and self.calls(node.value) for node in self.nodes):
            return True
        shared = {name for node in self.nodes if self.calls(node) for name in _names(node)}
        shared -= self.candidates | _BUILTINS
        while more := {n for b in self.bindings if not b.calls and b.names & shared for n in b.names} - shared:
            shared |= more
        shared -= self.returned
        given = self.candidates | self.returned

        def outside(node: ast.AST) -> set[str]:
            if isinstance(node, ast.Call) and _names(node.func) & given:
                return set()
            inner = {name for child in ast.iter_child_nodes(node) for name in outside(child)}
            return inner | {node.id} if isinstance(node, ast.Name) else inner

        for test in self._asserted():
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
            for side in sides:
                others = [other for other in sides if other is not side] or [test]
                if outside(side) & shared and not any(_names(other) & given for other in others):
                    return True
        return False

    def _asserted(self) -> Iterator[ast.expr]:
        """Conditions that are asserted, ``a and b`` as two."""
        tests = [node.test for node in self.nodes if isinstance(node, ast.Assert)]
        tests += [test for node in self.nodes if (test := unittest_assert(node)) is not None]
        while tests:
            test = tests.pop()
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
                tests += test.values
            else:
                yield test


class _Binding(NamedTuple):
    targets: set[str]
    names: set[str]  # of targets and value
    root: str | None  # name that the value begins with
    calls: bool  # the value holds a call of the function


def _collected(tree: ast.Module) -> Iterator[str]:
    """Test functions and classes as unittest and pytest find them, except those that the tests call themselves."""
    classes: set[str] = {"TestCase", "IsolatedAsyncioTestCase"}
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    used = _mentioned([n for s in tree.body if not isinstance(s, definitions) for n in ast.walk(s)])
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            needed = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
            needed += sum(default is None for default in arguments.kw_defaults)
            if "parametrize" in _mentioned([n for d in node.decorator_list for n in ast.walk(d)]):
                needed = 0
            if node.name.startswith("test") and not needed and node.name not in used:
                yield node.name
        elif isinstance(node, ast.ClassDef):
            if _mentioned([n for base in node.bases for n in ast.walk(base)]) & classes:
                classes.add(node.name)
            elif not node.name.startswith("Test"):
                continue
            if node.name not in used:
                yield node.name


def unittest_assert(node: ast.AST) -> ast.expr | None:
    """``self.assertEqual(a, b)`` and its relatives as the comparison that they make; None for anything else."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    if not node.func.attr.startswith("assert"):
        return None
    equal = node.func.attr.endswith(("Equal", "Equals")) and "Not" not in node.func.attr
    return ast.Compare(node.args[0], [ast.Eq() if equal else ast.Lt()] * len(node.args[1:2]), node.args[1:2])


def _compares_identities(node: ast.Compare) -> bool:
    compared = [node.left, *node.comparators]
    return any(
        isinstance(operator, (ast.Is, ast.IsNot)) and not any(map(_singleton, compared[i : i + 2]))
        for i, operator in enumerate(node.ops)
    )


def _singleton(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or type(node.value) is bool or node.value is ...)


def _names(*nodes: ast.AST) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _root(node: ast.AST) -> str | None:
    """The name that an expression of attributes, items and calls begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def bound_names(tree: ast.AST) -> set[str]:
    """Names that are given a value anywhere in ``tree``."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return bound


def _mentioned(nodes: Sequence[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= _imported(node)
    return names


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = {part for alias in node.names for part in alias.name.split(".")}
    return names | set((getattr(node, "module", None) or "").split("."))
