"""The structure of a workflow: the order of its operator calls, and its text without layout. Lint reads both.

A shape such as ``3xAnswerGenerate>ScEnsemble`` is read from the text, so workflows that differ only in wording have the
same one. Branches count like straight lines, and a helper counts once, at its place in the text.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Mapping

from llm_as_judge.answers.code import LONGEST_PARSED, one_error, quiet_parse
from llm_as_judge.workflow.lint.imports import Imports
from llm_as_judge.workflow.lint.variables import rounds

Counted = tuple[str, str]  # count and operator, or count and a group in brackets


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
    """Strip ``source`` of comments, docstrings, annotations and layout; text that is not Python keeps its words."""
    try:
        with one_error():
            return ast.unparse(_Bare().visit(quiet_parse(source, LONGEST_PARSED)))
    except SyntaxError:
        return " ".join(source.split())


def structure(tree: ast.Module, imports: Imports) -> tuple[str, str]:
    """Find the shape of a workflow, and a digest of its normalised code; changes ``tree``.

    The shape is the operators that a workflow calls, in the order of the text, joined by ``>``. A loop over a constant
    number of items multiplies (``3x``), other loops give ``nx``; consecutive calls of one operator are added up. It is
    ``""`` for a workflow without calls, ``invalid`` for a text without a workflow.
    """
    try:
        with one_error():
            nodes = list(ast.walk(tree))
            names = {getattr(node, "name", "") for node in nodes}
            operators = {place: name for place, (name, _) in imports.places(nodes).items()}
            shape = _text(_units([tree], operators)) if {"Workflow", "__call__"} <= names else "invalid"
            code = ast.unparse(_Bare().visit(tree)).encode("utf-8", "replace")
            return shape, hashlib.sha256(code).hexdigest()[:16]
    except SyntaxError:
        return "invalid", ""


def _units(nodes: Iterable[ast.AST], operators: Mapping[str, str]) -> list[Counted]:
    units: list[Counted] = []
    for node in nodes:
        for count, name in _node(node, operators):
            if units and units[-1][1] == name:
                count = _number(units.pop()[0], count, int.__add__)
            units.append((count, name))
    return units


def _node(node: ast.AST, operators: Mapping[str, str]) -> list[Counted]:
    match node:
        case ast.For(iter=iterable, body=body) | ast.AsyncFor(iter=iterable, body=body):
            once = _units([iterable], operators)
            return [*once, *_times(_count(iterable), _units(body, operators)), *_units(node.orelse, operators)]
        case ast.While(test=test, body=body):
            return _times("n", _units([test, *body], operators))
        case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
            inner = _units([element], operators)
            for generator in node.generators:
                inner = [*_units([generator.iter], operators), *_times(_count(generator.iter), inner)]
            return inner
    units = _units(ast.iter_child_nodes(node), operators)
    if isinstance(node, ast.Call) and (operator := operators.get(ast.unparse(node.func))):
        units.append(("1", operator))
    return units


def _count(iterable: ast.expr) -> str:
    known = rounds(iterable)
    return "n" if known is None else str(known)


def _number(first: str, second: str, sign: Callable[[int, int], int]) -> str:
    return "n" if "n" in (first, second) else str(sign(int(first), int(second)))


def _times(count: str, units: list[Counted]) -> list[Counted]:
    if not units or count == "0":
        return []
    if len(units) > 1:
        return units if count == "1" else [(count, f"({_text(units)})")]
    own, name = units[0]
    return [(_number(count, own, int.__mul__), name)]


def _text(units: list[Counted]) -> str:
    return ">".join(name if count == "1" else f"{count}x{name}" for count, name in units)
