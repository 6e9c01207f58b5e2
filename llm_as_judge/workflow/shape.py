"""The shape of a workflow: which operators it calls in which order, and its text without layout.

A shape (``3xAnswerGenerate>ScEnsemble``) is read off the text, so that equal ideas in other words count as one;
branches are not told from straight lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from llm_as_judge.workflow.lint.kinds import Knowledge, operator_built


def normalise_code(source: str) -> str:
    """``source`` without comments, blank lines and layout; text that is no Python keeps its words."""
    try:
        return ast.unparse(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return " ".join(source.split())


def shape(source: str) -> str:
    """The operators called in ``__call__``, in the order of the text, joined by ``>``.

    A loop over a constant number of things multiplies (``3x``), over others gives ``nx``; the same operator
    several times running counts up. ``""`` for a workflow that calls none, ``invalid`` for no workflow.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "invalid"
    methods = {
        node.name: node
        for workflow in tree.body
        if isinstance(workflow, ast.ClassDef) and workflow.name == "Workflow"
        for node in workflow.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    if "__call__" not in methods:
        return "invalid"
    built: dict[str, str] = {}
    for node in ast.walk(methods["__init__"]) if "__init__" in methods else ():
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=attribute)], value=ast.Call(func=func)):
                built[attribute] = operator_built(func, Knowledge()) or ""
    return _text(_Shape({a: n for a, n in built.items() if n}).of(methods["__call__"].body))


Unit = tuple[str, str]  # count and operator, or count and a group in brackets


class _Shape:
    def __init__(self, built: Mapping[str, str]) -> None:
        self._built = built
        self._lengths: dict[str, int] = {}  # variables that hold a literal list

    def of(self, nodes: Iterable[ast.AST]) -> list[Unit]:
        units: list[Unit] = []
        for node in nodes:
            for unit in self._node(node):
                if units and units[-1][1] == unit[1]:
                    units[-1] = (_sum(units[-1][0], unit[0]), unit[1])
                else:
                    units.append(unit)
        return units

    def _node(self, node: ast.AST) -> list[Unit]:
        match node:
            case ast.For(iter=iterable, body=body) | ast.AsyncFor(iter=iterable, body=body):
                rounds = _times(self._count(iterable), self.of(body))
                return [*self.of([iterable]), *rounds, *self.of(node.orelse)]
            case ast.While(test=test, body=body):
                return _times("n", self.of([test, *body]))
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = self.of([element])
                for generator in node.generators:
                    inner = [*self.of([generator.iter]), *_times(self._count(generator.iter), inner)]
                return inner
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)):
                self._lengths[name] = len(elements)
        units = self.of(ast.iter_child_nodes(node))
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr=attribute)) if attribute in self._built:
                units.append(("1", self._built[attribute]))
        return units

    def _count(self, iterable: ast.expr) -> str:
        match iterable:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
                return str(stop)
            case ast.Call(
                func=ast.Name(id="range"),
                args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))],
            ):
                return str(max(0, stop - start))
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                return self._count(inner)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return str(len(elements))
            case ast.Name(id=name) if self._lengths.get(name):
                return str(self._lengths[name])
        return "n"


def _sum(first: str, second: str) -> str:
    return "n" if "n" in (first, second) else str(int(first) + int(second))


def _times(count: str, units: list[Unit]) -> list[Unit]:
    if not units or count == "0":
        return []
    if len(units) > 1:
        return units if count == "1" else [(count, f"({_text(units)})")]
    own, name = units[0]
    return [("n" if "n" in (count, own) else str(int(count) * int(own)), name)]


def _text(units: list[Unit]) -> str:
    return ">".join(name if count == "1" else f"{count}x{name}" for count, name in units)
