"""Verdicts that a solution cannot forge: its tests run in another child, and the host carries values between them.

``plan`` reads the tests, and nothing but the tests and their prelude, to see whether they can be run that way:
what decides must not be in the solution's hand. Tests that use more of the solution than calls of one function
(its classes, its helpers, its output, the identity of objects) cannot; they get a weak verdict.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.child import Child
from llm_as_judge.sandbox.run import Last, last_frame

_BUILTINS = frozenset(dir(builtins))
_SINGLETONS = (None, True, False, Ellipsis)
#: Where tests look beyond values: at output, at the function itself, at another module's inside.
_BEYOND_VALUES = frozenset(
    ("stdout", "stderr", "redirect_stdout", "redirect_stderr", "capsys", "mock", "patch", "monkeypatch", "inspect")
)


#: Why a child was killed when the other one ended first.
STOPPED = "stopped"
_REPLY = ("value", "error", "message", "arguments")


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """``obstacle`` says why the tests cannot be split, "" if they can."""

    obstacle: str = ""
    modules: tuple[str, ...] = ()  # standard modules that the tests take for imported
    in_place: bool = False  # the tests call for effect: they look at changed arguments


def plan(tests: str, prelude: str, entry_point: str) -> SplitPlan:
    """How to run the tests. Raises ``DataError`` for tests that are no Python or never mention the function."""
    try:
        tree, before = ast.parse(tests), ast.parse(prelude)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"the tests of {entry_point!r} are not Python: {error}") from None
    nodes = list(ast.walk(tree))
    functions = {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}
    candidates = {entry_point}
    if "check" in functions and entry_point != "check":
        candidates.update(argument.arg for argument in functions["check"].args.args[:1])
    elif entry_point not in _mentioned(nodes):
        raise DataError(f"the tests of {entry_point!r} never use it: they would pass anything")
    free = {n.id for n in nodes if isinstance(n, ast.Name)} - _bound(tree) - _bound(before) - _BUILTINS - {entry_point}
    modules = tuple(sorted(free & sys.stdlib_module_names))
    in_place = any(isinstance(n, ast.Expr) and _calls(n.value, candidates) for n in nodes)
    return SplitPlan(_obstacle(nodes, free - set(modules), candidates), modules, in_place)


def _obstacle(nodes: Sequence[ast.AST], unknown: set[str], candidates: set[str]) -> str:
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
        if isinstance(node, (ast.Attribute, ast.Call)):
            used = node.value if isinstance(node, ast.Attribute) else node.func
            if _calls(used, candidates) and isinstance(node, ast.Call):
                return "the tests call what the function returns"
            if isinstance(node, ast.Attribute) and isinstance(used, ast.Name) and used.id in candidates:
                return "the tests look at the function itself"
    beyond = _BEYOND_VALUES & _mentioned(nodes)
    return f"the tests use {', '.join(sorted(beyond))}" if beyond else ""


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


async def relay(children: Sequence[Child], solution_job: Mapping[str, Any], tests_job: Mapping[str, Any]) -> list[Last]:
    """Carry calls from the tests' child to the solution's and values back, until one of them ends.

    Returns:
        The last of the solution's child and of the tests' child; the one that did not end is killed as ``STOPPED``.
    """
    solution, tests = children
    # The tests' child sets up while the solution is executed.
    _, _, ready = await asyncio.gather(solution.send(solution_job), tests.send(tests_job), last_frame(solution))
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
        await tests.send({key: reply[key] for key in _REPLY if key in reply})
