"""The structure of a workflow: which operators it calls in which order, and its text without layout.

A shape such as ``3xAnswerGenerate>ScEnsemble`` is read from the text, so workflows that differ only in wording have the
same one. Branches count like straight lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from llm_as_judge.answers.code import LONGEST_PARSED, one_error, quiet_parse
from llm_as_judge.workflow.lint.values import Function, operator_built, rounds


class _Bare(ast.NodeTransformer):
    """Removes annotations and docstrings."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return node if node.value is None else ast.Assign([node.target], node.value, lineno=node.lineno)

    def _body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if not isinstance(node, ast.ClassDef):
            node.returns = None
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _body


def normalise_code(source: str) -> str:
    """``source`` without comments, docstrings, annotations and layout; text that is not Python keeps its words."""
    try:
        with one_error():
            return ast.unparse(_Bare().visit(quiet_parse(source, LONGEST_PARSED)))
    except SyntaxError:
        return " ".join(source.split())


def shape(source: str) -> str:
    """The operators called by ``__call__`` and its helpers, in the order of the text, joined by ``>``.

    A loop over a constant number of items multiplies (``3x``), other loops give ``nx``; consecutive calls of one
    operator are added up. ``""`` for a workflow without calls, ``invalid`` for a text without a workflow.
    """
    try:
        with one_error():
            tree = quiet_parse(source, LONGEST_PARSED)
            classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
            methods = _methods(classes.get("Workflow"), classes)
            if "__call__" not in methods:
                return "invalid"
            return _text(_Outline(_operators(tree), methods).of(methods["__call__"].body))
    except SyntaxError:
        return "invalid"


def _methods(cls: ast.ClassDef | None, classes: Mapping[str, ast.ClassDef]) -> dict[str, Function]:
    """Methods of the class and of its bases in the same text."""
    if cls is None:
        return {}
    bases = [classes.get(b.id) for b in cls.bases if isinstance(b, ast.Name) and b.id != cls.name]
    found = {name: method for base in bases for name, method in _methods(base, classes).items()}
    return found | {n.name: n for n in cls.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _operators(tree: ast.Module) -> dict[str, str]:
    """Source of every place that holds an operator (``self.answer``, ``self.ops['answer']``) -> its name."""
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in ("operator", "operators")
        for alias in node.names
    }
    found: dict[str, str] = {}

    def put(place: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=func) if name := operator_built(func, ("operator",), imported):
                found[place] = name
            case ast.Dict(keys=keys, values=values):
                for key, member in zip(keys, values, strict=True):
                    if key is not None:
                        put(f"{place}[{ast.unparse(key)}]", member)
            case ast.Name(id=other) if other in found:
                found[place] = found[other]

    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=places)], value=ast.Tuple(elts=values)):
                for place, value in zip(places, values, strict=False):
                    put(ast.unparse(place), value)
            case ast.Assign(targets=[place], value=value) | ast.AnnAssign(target=place, value=ast.expr() as value):
                put(ast.unparse(place), value)
    return found


Unit = tuple[str, str]  # count and operator, or count and a group in brackets


class _Outline:
    def __init__(self, operators: Mapping[str, str], methods: Mapping[str, Function]) -> None:
        self._operators = operators
        self._methods = methods
        self._functions: dict[str, Function] = {}  # defined within
        self._lengths: dict[str, int] = {}  # variables that hold a literal list
        self._open: list[Function] = []  # being read

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
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._functions[node.name] = node
                return []
            case ast.Name(id=name, ctx=ast.Load()) if name in self._functions:
                return self._within(self._functions[name])
            case ast.Attribute(value=ast.Name(), attr=name) if name in self._methods and name != "__call__":
                return self._within(self._methods[name])
        units = self.of(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call) and (operator := self._operators.get(ast.unparse(node.func))):
            units.append(("1", operator))
        return units

    def _within(self, function: Function) -> list[Unit]:
        if function in self._open:  # it calls itself
            return []
        self._open.append(function)
        units = self.of(function.body)
        self._open.pop()
        return units

    def _count(self, iterable: ast.expr) -> str:
        match iterable:
            case ast.Name(id=name) if self._lengths.get(name):
                return str(self._lengths[name])
            case ast.Call(func=ast.Name(id="enumerate"), args=[ast.Name() as inner, *_]):
                return self._count(inner)
        known = rounds(iterable)
        return "n" if known is None else str(known)


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
