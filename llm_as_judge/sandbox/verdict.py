"""Verdicts that a solution cannot forge: its tests run in another child, and the host carries values between them.

``plan`` reads the tests, and nothing but the tests and their prelude, to see whether they can be run that way:
what decides must not be in the solution's hand. Tests that use more of the solution than calls of one function
(its classes, its helpers, its output, the identity of objects) cannot; they get a weak verdict.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.child import Child
from llm_as_judge.sandbox.guest.values import ATTRIBUTES
from llm_as_judge.sandbox.run import Last, last_frame

_BUILTINS = frozenset(dir(builtins))
_SINGLETONS = (None, True, False, Ellipsis)
#: Where tests look beyond values: at output, at the function itself, at another module's inside.
_BEYOND_VALUES = frozenset(
    ("stdout", "stderr", "redirect_stdout", "redirect_stderr", "capsys", "mock", "patch", "monkeypatch", "inspect")
)


#: Why a child was killed when the other one ended first.
STOPPED = "stopped"
_REPLY = ("value", "error", "message", "arguments", "items", "ended")


#: Whether tests look at changed arguments, and if so whether the change alone could make them pass.
InPlace = Literal["no", "exact", "weak"]


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """``obstacle`` says why the tests cannot be split, "" if they can."""

    obstacle: str = ""
    modules: tuple[str, ...] = ()  # standard modules that the tests take for imported
    in_place: InPlace = "no"


@functools.lru_cache(maxsize=64)  # a group's rollouts have the same tests
def plan(tests: str, prelude: str, entry_point: str) -> SplitPlan:
    """How to run the tests. Raises ``DataError`` for tests that are no Python or never mention the function."""
    try:
        return _plan(quiet_parse(tests), quiet_parse(prelude), entry_point)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        said = str(error) or type(error).__name__
        raise DataError(f"the tests of {entry_point!r} are not Python: {said}") from None


def _plan(tree: ast.Module, before: ast.Module, entry_point: str) -> SplitPlan:
    nodes = list(ast.walk(tree))
    functions = {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}
    candidates = {entry_point}
    if "check" in functions and entry_point != "check":
        candidates.update(argument.arg for argument in functions["check"].args.args[:1])
    elif entry_point not in _mentioned(nodes):
        raise DataError(f"the tests of {entry_point!r} never use it: they would pass anything")
    free = {n.id for n in nodes if isinstance(n, ast.Name)} - _bound(tree) - _bound(before) - _BUILTINS - {entry_point}
    modules = tuple(sorted(free & sys.stdlib_module_names))
    bindings = list(_bindings(nodes, candidates))
    returned = _returned(bindings)
    obstacle = _obstacle(nodes, free - set(modules), candidates, returned)
    return SplitPlan(obstacle, modules, _in_place(nodes, candidates, returned, bindings))


def _obstacle(nodes: Sequence[ast.AST], unknown: set[str], candidates: set[str], returned: set[str]) -> str:
    if unknown:
        return f"the tests use {', '.join(sorted(unknown))} of the solution"
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "solution" in _imported(node):
            return "the tests import the solution"
        if isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncWith, ast.AsyncFor)):
            return "the tests are asynchronous"
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            for i, operator in enumerate(node.ops):
                if isinstance(operator, (ast.Is, ast.IsNot)) and not any(map(_singleton, compared[i : i + 2])):
                    return "the tests compare identities"
        if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES and _root(node) in candidates | returned:
            return f"the tests look at .{node.attr} of what the function returns"
        if isinstance(node, (ast.Attribute, ast.Call)):
            used = node.value if isinstance(node, ast.Attribute) else node.func
            if _calls(used, candidates) and isinstance(node, ast.Call):
                return "the tests call what the function returns"
            if isinstance(node, ast.Attribute) and isinstance(used, ast.Name) and used.id in candidates:
                return "the tests look at the function itself"
    beyond = _BEYOND_VALUES & _mentioned(nodes)
    return f"the tests use {', '.join(sorted(beyond))}" if beyond else ""


def _returned(bindings: Sequence[_Binding]) -> set[str]:
    """Names of what the function returned, or of a part of it."""
    found: set[str] = set()
    while more := {n for b in bindings if b.calls or b.root in found for n in b.targets} - found:
        found |= more
    return found


def _in_place(
    nodes: Sequence[ast.AST], candidates: set[str], returned: set[str], bindings: Sequence[_Binding]
) -> InPlace:
    """What the tests make of changed arguments.

    ``assert f(x) == sorted(x)`` does not look at changes: a function that empties its argument must not pass.
    ``f(x)`` and then ``assert x == [1, 2]`` looks at them, and only compares them with what no argument has a part in:
    exact. ``f(x)`` and then ``assert x == sorted(x)`` looks, too, and is not. In doubt the answer is "weak".
    """
    arguments = {name for node in nodes if _calls(node, candidates) for name in _names(node)} - candidates - _BUILTINS
    shared = _linked(arguments, [binding for binding in bindings if not binding.calls]) - returned
    asserted = [part for node in nodes if isinstance(node, ast.Assert) for part in _conjuncts(node.test)]
    bare = any(isinstance(node, ast.Expr) and _calls(node.value, candidates) for node in nodes)
    if not bare and not any(_looks_at(part, shared, candidates | returned) for part in asserted):
        return "no"
    linked = _linked(arguments, bindings)
    if not all(_one_sided(part, linked) for part in asserted):
        return "weak"
    for node in nodes:
        used: ast.AST | None = None
        if isinstance(node, (ast.If, ast.While)):
            used = node.test
        elif isinstance(node, (ast.Return, ast.Raise, ast.With, ast.Delete, ast.NamedExpr, ast.Match)) or (
            isinstance(node, ast.Expr) and not _calls(node.value, candidates)
        ):
            used = node
        if used is not None and _names(used) & linked:
            return "weak"
    return "exact"


def _linked(names: set[str], bindings: Sequence[_Binding]) -> set[str]:
    """``names`` and those that may share objects with them, by whichever way."""
    found = set(names)
    while more := {n for b in bindings if b.names & found for n in b.names} - found:
        found |= more
    return found


def _conjuncts(test: ast.AST) -> list[ast.AST]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _conjuncts(value)]
    return [test]


def _sides(test: ast.AST) -> list[ast.AST]:
    return [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]


def _looks_at(test: ast.AST, shared: set[str], given: set[str]) -> bool:
    """A side names an argument outside of a call of the function, and no other side has what the function gave."""

    def outside(node: ast.AST) -> set[str]:
        if isinstance(node, ast.Call) and _names(node.func) & given:
            return set()
        inner = {name for child in ast.iter_child_nodes(node) for name in outside(child)}
        return inner | {node.id} if isinstance(node, ast.Name) else inner

    sides = _sides(test)
    if len(sides) == 1:
        return bool(outside(test) & shared) and not _names(test) & given
    return any(
        outside(side) & shared and not any(_names(other) & given for other in sides if other is not side)
        for side in sides
    )


def _one_sided(test: ast.AST, linked: set[str]) -> bool:
    sides = _sides(test)
    equal = isinstance(test, ast.Compare) and all(isinstance(operator, (ast.Eq, ast.Is)) for operator in test.ops)
    return sum(bool(_names(side) & linked) for side in sides) <= (1 if equal else 0)


class _Binding(NamedTuple):
    targets: set[str]
    names: set[str]  # of targets and value
    root: str | None  # that the value begins with
    calls: bool  # the function


def _bindings(nodes: Sequence[ast.AST], candidates: set[str]) -> Iterator[_Binding]:
    for node in nodes:
        value: ast.AST | None = None
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets, value = list(node.targets), node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets, value = [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets, value = [node.target], node.iter
        if value is not None:
            inner, bound = list(ast.walk(value)), _names(*targets)
            names = {n.id for n in inner if isinstance(n, ast.Name)} | bound
            calls = any(_calls(n, candidates) for n in inner)
            yield _Binding(bound, names - _BUILTINS, _root(value), calls)


def _names(*nodes: ast.AST) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _root(node: ast.AST) -> str | None:
    """The name that an expression of attributes, items and calls begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _bound(tree: ast.AST) -> set[str]:
    """Every name given a value anywhere in ``tree``."""
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
    return set(_mentions(nodes))


def _mentions(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _imported(node)


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = {part for alias in node.names for part in alias.name.split(".")}
    return names | set((node.module or "").split(".")) if isinstance(node, ast.ImportFrom) else names


def _calls(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _singleton(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is singleton for singleton in _SINGLETONS)


class Split:
    """One such run: the solution's job, and what the tests' has beside it."""

    def __init__(self, job: Mapping[str, Any], tests: Mapping[str, Any]) -> None:
        self._solution_job = {**job, "kind": "solution"}
        self._tests_job = {**job, **tests, "kind": "split tests", "source": ""}
        self.arguments_changed = False  # or so the solution says

    async def relay(self, children: Sequence[Child]) -> list[Last]:
        """Carry calls from the tests' child to the solution's and values back, until one of them ends.

        Returns:
            The last of the solution's child and of the tests' child; the one that did not end is killed as ``STOPPED``.
        """
        solution, tests = children
        # The tests' child sets up while the solution is executed.
        _, _, ready = await asyncio.gather(
            solution.send(self._solution_job), tests.send(self._tests_job), last_frame(solution)
        )
        if not (isinstance(ready, dict) and ready.get("ready") is True):
            tests.kill(STOPPED)
            return [ready, None]
        while True:
            request = await last_frame(tests)
            if not isinstance(request, dict) or "end" in request:
                solution.kill(STOPPED)
                return [None, request]
            await solution.send(request)
            reply = await last_frame(solution)
            if not isinstance(reply, dict) or "end" in reply:
                tests.kill(STOPPED)
                return [reply, None]
            self.arguments_changed |= "arguments" in reply
            await tests.send({key: reply[key] for key in _REPLY if key in reply})
