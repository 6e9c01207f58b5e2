"""How to run hidden tests: whether they can be separated from the solution, and whether they check changed arguments.

Only the tests and their prelude are read, never the solution: it must not influence how it is judged. Tests that use
more of the solution than calls of one function (its classes, its helpers, its output, object identities) cannot run in
their own process; their verdict is weak.
"""

import ast
import builtins
import functools
import operator
import sys
import unittest
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.guest import pytest_names
from llm_as_judge.sandbox.guest.values import ATTRIBUTES

_BUILTINS = frozenset(dir(builtins))
_GIVEN = ("__name__", "__file__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Starts of the names of functions that are called because of their names, besides tests.
_CALLED = ("setup", "teardown", "__")
#: Names that show that tests look beyond values: at output, at the function itself, into modules.
_BEYOND_VALUES = frozenset(
    ("stdout", "stderr", "redirect_stdout", "redirect_stderr", "capsys", "mock", "patch", "monkeypatch", "inspect")
)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """``obstacle`` says why the tests cannot be split, "" if they can."""

    obstacle: str
    modules: tuple[str, ...]  # standard modules that the tests use without importing them
    in_place: bool  # the tests look at changed arguments


@functools.lru_cache(maxsize=64)  # the rollouts of a group have the same tests
def plan(tests: str, prelude: str, entry_point: str) -> SplitPlan:
    """Raises ``DataError`` for tests that are empty, not Python, or never use the function, that have an assert that
    never runs, or use what a child lacks.
    """
    if not tests.strip():
        raise DataError(f"no tests for {entry_point!r}: a verdict without tests would pass anything")
    try:
        tree = quiet_parse(tests)
        found = _Tests(tree, entry_point)
        unbound = {n.id for n in found.nodes if isinstance(n, ast.Name)} - {entry_point, *_GIVEN} - _BUILTINS
        unbound -= bound_names(tree) | bound_names(quiet_parse(prelude))
    except SyntaxError as error:
        raise DataError(f"the tests of {entry_point!r} are not Python: {error}") from None
    modules = unbound & sys.stdlib_module_names
    unknown = ", ".join(sorted(unbound - modules))
    obstacle = f"the tests use {unknown} of the solution" if unknown else found.obstacle()
    return SplitPlan(obstacle, tuple(sorted(modules)), found.look_at_changes())


class _Tests:
    """The syntax tree of the tests.

    ``candidates`` are the names of the function and of helpers that return what it returns, ``returned`` those of what
    it returned or of a part of that.
    """

    def __init__(self, tree: ast.Module, entry_point: str) -> None:
        self.nodes = list(ast.walk(tree))
        check = next((n for n in self.nodes if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
        arguments = check.args.args[:1] if check and entry_point != "check" else []
        if not arguments and entry_point not in _mentioned(self.nodes):
            raise DataError(f"the tests of {entry_point!r} never use it: they would pass anything")
        self._refuse_idle(tree, entry_point)
        self._refuse_lacking()
        self.candidates = _closure({entry_point, *(a.arg for a in arguments)}, self._forwarding)
        self.returned = _closure(set(), self._bound_to_results)

    def _refuse_idle(self, tree: ast.Module, entry_point: str) -> None:
        """Every assert must be in the script, in a function that is called for its name, or in one that these name."""
        functions = [node for node in self.nodes if isinstance(node, _FUNCTIONS)]
        script = list(_executed(tree.body))
        mentioned = _mentioned(script)
        classes = [node for node in script if isinstance(node, ast.ClassDef)]
        unused = [c for c in classes if not (c.bases or c.name.startswith("Test") or c.name in mentioned)]
        idle = {method for unused_class in unused for method in unused_class.body}
        decorated = {n for node in script if getattr(node, "decorator_list", ()) for n in ast.walk(node)}

        def named(names: set[str]) -> Iterable[str]:
            return _mentioned(n for f in functions if f.name in names for n in _executed(f.body))

        by_name = [n for n in script if isinstance(n, _FUNCTIONS) and _called_by_name(n, n in decorated)]
        running = _closure(mentioned | {n.name for n in by_name if n not in idle}, named)
        lines = [n.lineno for f in functions if f.name not in running for n in _executed(f.body) if is_assert(n)]
        if lines:
            raise DataError(
                f"the assert in line {min(lines)} of the tests of {entry_point!r} never runs: call its function, or "
                "make it a test without parameters"
            )

    def _refuse_lacking(self) -> None:
        """Tests that use what a child lacks would fail with every solution."""
        tried = {n for node in self.nodes if isinstance(node, ast.Try) for n in ast.walk(node)}
        for node in self.nodes:
            match node:
                case ast.Import(names=aliases) if node not in tried:
                    used = [alias.name for alias in aliases]
                case ast.ImportFrom(module=str(module), names=aliases) if node not in tried:
                    used = [f"{module}.{alias.name}" for alias in aliases]
                case ast.Attribute() if _root(node) == "pytest":
                    used = [ast.unparse(node)]
                case _:
                    continue
            for name in used:
                if _lacks(name):
                    raise DataError(
                        f"line {node.lineno} of the tests uses {name}, which the sandbox lacks: do without it"
                    )

    def calls(self, node: ast.AST | None, names: set[str] | None = None) -> bool:
        """Whether ``node`` is a call of the function."""
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
                yield from _names(*targets) - {"self"}

    def obstacle(self) -> str:
        """Why the tests cannot be split; "" if they can."""
        for node in self.nodes:
            match node:
                case ast.Import() | ast.ImportFrom() if "solution" in _mentioned([node]):
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
        beyond = _BEYOND_VALUES & _mentioned(self.nodes)
        return f"the tests use {', '.join(sorted(beyond))}" if beyond else ""

    def look_at_changes(self) -> bool:
        """Whether the tests check what the function did to its arguments.

        They do if they ignore a returned value, or assert something about an argument that is not compared with a
        returned value. ``assert f(x) == sorted(x)`` does not: a function that empties its argument must not pass.
        """
        if any(isinstance(node, ast.Expr) and self.calls(node.value) for node in self.nodes):
            return True
        given = self.candidates | self.returned
        shared = {name for node in self.nodes if self.calls(node) for name in _names(node)} - given - _BUILTINS

        def outside(node: ast.AST) -> set[str]:
            """Names outside of calls of the function."""
            if isinstance(node, ast.Call) and _names(node.func) & given:
                return set()
            inner = {name for child in ast.iter_child_nodes(node) for name in outside(child)}
            return inner | {node.id} if isinstance(node, ast.Name) else inner

        for test in self._asserted():
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
            for side in sides:
                others = [other for other in sides if other is not side] or [test]
                if outside(side) & shared and not _names(*others) & given:
                    return True
        return False

    def _asserted(self) -> Iterator[ast.expr]:
        """Conditions that are asserted, ``a and b`` as two."""
        tests = [n.test if isinstance(n, ast.Assert) else unittest_assert(n) for n in self.nodes]
        for test in tests:
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
                tests += test.values
            elif test is not None:
                yield test


def _closure(names: set[str], more: Callable[[set[str]], Iterable[str]]) -> set[str]:
    """``names`` and all that ``more`` finds from them."""
    while found := set(more(names)) - names:
        names = names | found
    return names


def _executed(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes that run when ``body`` does: all but the bodies of its functions."""
    todo = list(body)
    for node in todo:
        yield node
        todo += [*node.decorator_list, node.args] if isinstance(node, _FUNCTIONS) else ast.iter_child_nodes(node)


def _called_by_name(function: ast.FunctionDef | ast.AsyncFunctionDef, decorated: bool) -> bool:
    """Whether the sandbox or ``unittest`` calls a function because of its name. A decorator may give it arguments."""
    name, arguments = function.name, function.args
    if name.startswith("test"):
        positional = [argument.arg for argument in arguments.posonlyargs + arguments.args]
        return decorated or {*positional[: len(positional) - len(arguments.defaults)]} <= {"self", "cls"}
    return name in ("check", "runTest") or name.startswith(_CALLED) or hasattr(unittest.TestCase, name)


def _lacks(path: str) -> bool:
    """Whether a child lacks a module, or a name of pytest."""
    module, _, rest = path.partition(".")
    if module != "pytest":
        return module not in sys.stdlib_module_names | {"solution"}
    try:
        operator.attrgetter(rest)(pytest_names) if rest.replace(".", "").isidentifier() else None
    except AttributeError:
        return True
    return False


def is_assert(node: ast.AST) -> TypeGuard[ast.Assert | ast.Call]:
    return isinstance(node, ast.Assert) or unittest_assert(node) is not None


def _doubtful_asserts(body: Iterable[ast.AST], inside: bool = False) -> Iterator[ast.stmt]:
    """Asserts within a generator, a task, ``try`` or ``with``, which may hide their failure.

    Not those under a condition or in a handler, which a right solution may reach and another one not.
    """
    for node in body:
        match node:
            case ast.If() | ast.IfExp() | ast.Match() | ast.ExceptHandler():
                continue
            case ast.Assert() | ast.Expr(value=ast.Call()) if is_assert(getattr(node, "value", node)):
                if inside:
                    yield node
                continue
            case ast.Try() | ast.With() | ast.AsyncWith() | ast.AsyncFunctionDef():
                hides = True
            case ast.FunctionDef(name=name):
                hides = not name.startswith(("test", "check", *_CALLED)) and name != "runTest"
            case _:
                hides = False
        yield from _doubtful_asserts(ast.iter_child_nodes(node), inside or hides)


def doubtful_lines(tests: str) -> list[int]:
    """The lines of asserts whose failure something around them may hide."""
    return sorted({node.lineno for node in _doubtful_asserts(quiet_parse(tests).body)})


def failing(tests: str, entry_point: str, line: int) -> str:
    """Tests in which the doubtful asserts of ``line`` fail and no other assert looks at a result."""
    tree = quiet_parse(tests)
    found = _Tests(tree, entry_point)
    doubtful = {node for node in _doubtful_asserts(tree.body) if node.lineno == line}

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if not isinstance(node, (ast.Assert, ast.Expr)) or not is_assert(getattr(node, "value", node)):
                return self.generic_visit(node)
            if node in doubtful:
                return [ast.If(ast.Constant(False), [node], []), ast.Raise(ast.Name("AssertionError", ast.Load()))]
            looks = _names(node) & (found.candidates | found.returned)
            return ast.If(ast.Constant(False), [node], []) if looks else node

    return ast.unparse(ast.fix_missing_locations(Change().visit(tree)))


def unittest_assert(node: ast.AST) -> ast.expr | None:
    """``self.assertEqual(a, b)`` and its relatives as the comparison that they make; None for anything else."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[left, *more]) if name.startswith("assert"):
            equal = name.endswith(("Equal", "Equals")) and "Not" not in name
            return ast.Compare(left, [ast.Eq() if equal else ast.Lt()] * len(more[:1]), more[:1])
    return None


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
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update((alias.asname or alias.name).partition(".")[0] for alias in aliases)
    return bound


def _mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                parts = [alias.name for alias in aliases] + [getattr(node, "module", None) or ""]
                names.update(part for name in parts for part in name.split("."))
    return names
