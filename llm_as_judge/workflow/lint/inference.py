"""What the expressions of a workflow evaluate to: operators, their calls and results, and lists of these.

``None`` means that the text does not say. Where branches disagree, nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llm_as_judge.operators import catalog, published
from llm_as_judge.operators.catalog import Operators

Kind = Literal["operator", "call", "result", "gathered", "list", "tuple", "dict", "text"]
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True)
class Inferred:
    """``operator``, ``call`` (not yet awaited) and ``result`` name their operator.

    ``items`` are those of a tuple, the one kind of element of a list (none: an empty list), or what awaiting a
    ``gathered`` gives.
    """

    kind: Kind
    operator: str = ""
    items: tuple[Inferred | None, ...] = ()


TEXT, DICT, EMPTY_LIST = Inferred("text"), Inferred("dict"), Inferred("list")
_AWAITABLE_WRAPPERS = ("create_task", "ensure_future", "wait_for", "shield")


def joined(first: Inferred | None, second: Inferred | None) -> Inferred | None:
    """What a variable holds where two paths meet."""
    if first == second:
        return first
    if first and second and first.kind == second.kind == "list":
        if not (first.items and second.items):
            return first if first.items else second
        return Inferred("list", items=(joined(first.items[0], second.items[0]),))
    return None


def element_of(value: Inferred | None) -> Inferred | None:
    """What iterating over ``value`` gives."""
    if value is None:
        return None
    if value.kind in ("text", "dict", "result"):
        return TEXT if value.kind != "dict" else None
    if value.kind in ("list", "tuple") and value.items:
        return _all_joined(value.items)
    return None


def _all_joined(values: Iterable[Inferred | None]) -> Inferred | None:
    first, *others = values
    for other in others:
        first = joined(first, other)
    return first


@dataclass(frozen=True, slots=True)
class NameTable:
    """What the names of one function mean: the operators it may use and where they are found."""

    operators: Operators
    attributes: Mapping[str, str]  # self.attribute -> operator
    modules: frozenset[str] = frozenset(("operator",))  # names of the operators' module
    imported: Mapping[str, str] | None = None  # from ...operator import Custom
    self_name: str = "self"

    def operator_built(self, function: ast.expr) -> str | None:
        """The name in ``operator.Name`` or an imported ``Name``, whether or not there is such an operator."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.modules:
                return published.own_name(name)
            case ast.Name(id=name) if self.imported and name in self.imported:
                return self.imported[name]
        return None

    def result_type(self, operator: str, key: Any) -> str | None:
        """Type word of a key of the operator's result; None if there is no such key."""
        keys = catalog.result_keys(self.operators[operator])
        return keys.get(published.spellings(operator).get(key, key))

    def value(self, node: ast.expr, variables: Mapping[str, Inferred | None]) -> Inferred | None:
        """The value of an expression, given those of the local variables."""

        def of(inner: ast.expr) -> Inferred | None:
            return self.value(inner, variables)

        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return TEXT
            case ast.Name(id=name):
                return variables.get(name)
            case ast.NamedExpr(value=inner):
                return of(inner)
            case ast.Attribute(value=ast.Name(id=self.self_name), attr=name) if name in self.attributes:
                return Inferred("operator", self.attributes[name])
            case ast.List(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
                return Inferred("list", items=(_all_joined(map(of, elements)),)) if elements else EMPTY_LIST
            case ast.List() | ast.Set():
                return Inferred("list", items=(None,))
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element) | ast.SetComp(elt=element):
                return Inferred("list", items=(self.value(element, self.inside(node, variables)),))
            case ast.Tuple(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
                return Inferred("tuple", items=tuple(map(of, elements)))
            case ast.Dict() | ast.DictComp():
                return DICT
            case ast.IfExp(body=yes, orelse=no):
                return joined(of(yes), of(no))
            case ast.BoolOp(values=parts):
                return _all_joined(map(of, parts))
            case ast.Await(value=inner):
                return _awaited(of(inner))
            case ast.Subscript(value=container, slice=ast.Constant(value=key)):
                return self._item(of(container), key)
            case ast.Call(func=function, args=arguments):
                built = self.operator_built(function)
                if built is not None:
                    return Inferred("operator", built) if built in self.operators else None
                called = of(function)
                if called and called.kind == "operator":
                    return Inferred("call", called.operator)
                return _of_call(function, arguments, [of(a) for a in arguments if not isinstance(a, ast.Starred)], of)
        return None

    def inside(self, node: Comprehension, variables: Mapping[str, Inferred | None]) -> dict[str, Inferred | None]:
        """The variables as a comprehension's element sees them."""
        inner = dict(variables)
        for generator in node.generators:
            element = element_of(self.value(generator.iter, inner))
            for name in names_in(generator.target):
                inner[name] = element if isinstance(generator.target, ast.Name) else None
        return inner

    def _item(self, container: Inferred | None, key: Any) -> Inferred | None:
        match container:
            case Inferred("result", operator):
                return TEXT if self.result_type(operator, key) == "str" else None
            case Inferred("list", _, (element,)):
                return element
            case Inferred("tuple", _, items) if isinstance(key, int) and key < len(items):
                return items[key]
        return None


def _of_call(function: ast.expr, arguments: list[ast.expr], values: list[Inferred | None], of: Any) -> Inferred | None:
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    if name == "gather":
        match arguments:
            case [ast.Starred(value=awaitables)]:
                return Inferred("gathered", items=(Inferred("list", items=(_awaited(element_of(of(awaitables))),)),))
        if len(values) == len(arguments):
            return Inferred("gathered", items=(Inferred("tuple", items=tuple(map(_awaited, values))),))
    if name in _AWAITABLE_WRAPPERS and values and values[0] and values[0].kind == "call":
        return values[0]
    return TEXT if isinstance(function, ast.Name) and name == "str" else None


def _awaited(value: Inferred | None) -> Inferred | None:
    if value and value.kind == "call":
        return Inferred("result", value.operator)
    return value.items[0] if value and value.kind == "gathered" else None


def names_in(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
