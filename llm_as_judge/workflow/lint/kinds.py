"""What lint knows of an expression's value: an operator, its unawaited call, its result, a list of results.

A value is the set of kinds it can have; None means anything. Checks speak only when every kind is wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Union

from llm_as_judge.operators import catalog, published
from llm_as_judge.operators.catalog import OPERATORS, Operators

Name = Literal[
    "operator",
    "call",
    "result",
    "list",
    "tuple",
    "dict",
    "none",
    "bool",
    "string",
    "number",
    "gather",
    "self",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """``operator``, ``call`` and ``result`` are of an operator; ``list`` and ``gather`` have elements."""

    name: Name
    operator: str = ""
    element: Value = None
    items: tuple[Value, ...] = ()


Value = Union["frozenset[Kind]", None]


def just(name: Name, operator: str = "", element: Value = None, items: tuple[Value, ...] = ()) -> Value:
    return frozenset((Kind(name, operator, element, items),))


def either(values: Iterable[Value]) -> Value:
    """The union; unknown if one of them is."""
    kinds: set[Kind] = set()
    for value in values:
        if value is None:
            return None
        kinds |= value
    return frozenset(kinds)


def operators_of(value: Value, name: Name) -> list[str]:
    """The operators, if every kind of ``value`` is a ``name`` of one; else nothing."""
    if value and all(kind.name == name for kind in value):
        return sorted(kind.operator for kind in value)
    return []


@dataclass(slots=True)
class Knowledge:
    """What holds for a class: the operators there are, its own, and the names that mean their module or one of them."""

    operators: Operators = field(default_factory=lambda: OPERATORS)
    attributes: Mapping[str, str] = field(default_factory=dict)  # self.attribute -> operator
    modules: frozenset[str] = frozenset(("operator",))
    imported: Mapping[str, str] = field(default_factory=dict)  # from ...operator import Custom
    models: frozenset[str] = frozenset()  # attributes of self that hold the model
    self_name: str = "self"


_CALLS: Mapping[str, Value] = {
    "str": just("string"),
    "list": just("list"),
    "sorted": just("list"),
    "dict": just("dict"),
    "len": just("number"),
    "int": just("number"),
    "float": just("number"),
    "bool": just("bool"),
}
_TYPES: Mapping[str, Value] = {"str": just("string"), "bool": just("bool")}
_WRAPPERS = ("create_task", "ensure_future", "wait_for", "shield")


def infer(node: ast.expr, variables: Mapping[str, Value], known: Knowledge) -> Value:
    """The value of an expression, given those of the local variables."""

    def of(inner: ast.expr) -> Value:
        return infer(inner, variables, known)

    match node:
        case ast.Constant(value=None):
            return just("none")
        case ast.Constant(value=bool()):
            return just("bool")
        case ast.Constant(value=str()) | ast.JoinedStr():
            return just("string")
        case ast.Constant(value=int() | float()):
            return just("number")
        case ast.Name(id=name):
            return variables.get(name)
        case ast.NamedExpr(value=inner):
            return of(inner)
        case ast.Attribute(value=ast.Name(id=known.self_name), attr=name) if name in known.attributes:
            return just("operator", known.attributes[name])
        case ast.List(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
            return just("list", element=either(map(of, elements)) if elements else None)
        case ast.List() | ast.Set() | ast.SetComp():
            return just("list")
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            inner_variables = comprehension_variables(node, variables, known)
            return just("list", element=infer(element, inner_variables, known))
        case ast.Tuple(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
            return just("tuple", items=tuple(map(of, elements)))
        case ast.Dict() | ast.DictComp():
            return just("dict")
        case ast.IfExp(body=yes, orelse=no):
            return either((of(yes), of(no)))
        case ast.BoolOp(values=parts):
            return either(map(of, parts))
        case ast.Await(value=inner):
            return _awaited(of(inner))
        case ast.Subscript(value=container, slice=index):
            return _item(of(container), index, known)
        case ast.Call():
            return _call(node, of, known)
    return None


def comprehension_variables(
    node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
    variables: Mapping[str, Value],
    known: Knowledge,
) -> dict[str, Value]:
    inner = dict(variables)
    for generator in node.generators:
        element = element_of(infer(generator.iter, inner, known))
        for name in (n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)):
            inner[name] = element if isinstance(generator.target, ast.Name) else None
    return inner


def element_of(value: Value) -> Value:
    """What iterating over ``value`` gives."""
    if value is None:
        return None
    return either(_element(kind) for kind in value)


def _element(kind: Kind) -> Value:
    match kind.name:
        case "list":
            return kind.element
        case "tuple" if kind.items:
            return either(kind.items)
        case "string":
            return just("string")
    return None


def operator_built(func: ast.expr, known: Knowledge) -> str | None:
    """The name in ``operator.Name`` or an imported ``Name``, whether there is such an operator or not."""
    match func:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in known.modules:
            return published.own_name(name)
        case ast.Name(id=name) if name in known.imported:
            return known.imported[name]
    return None


def called_name(func: ast.expr) -> str:
    """``gather`` for both ``gather(...)`` and ``asyncio.gather(...)``."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _call(node: ast.Call, of: Callable[[ast.expr], Value], known: Knowledge) -> Value:
    built = operator_built(node.func, known)
    if built is not None:
        return just("operator", built) if built in known.operators else None
    called = operators_of(of(node.func), "operator")
    if called:
        return either(just("call", name) for name in called)
    name = called_name(node.func)
    if name == "gather":
        match node.args:
            case [ast.Starred(value=inner)]:
                return just("gather", element=either((_awaited(element_of(of(inner))),)))
            case args if not any(isinstance(a, ast.Starred) for a in args):
                return just("gather", items=tuple(_awaited(of(a)) for a in args))
        return just("gather")
    if name in _WRAPPERS and node.args:
        inner_value = of(node.args[0])
        return inner_value if operators_of(inner_value, "call") else None
    if isinstance(node.func, ast.Name):
        return _CALLS.get(name)
    return None


def _awaited(value: Value) -> Value:
    if value is None:
        return None
    kinds: list[Value] = []
    for kind in value:
        if kind.name == "call":
            kinds.append(just("result", kind.operator))
        elif kind.name == "gather":
            kinds.append(just("tuple", items=kind.items) if kind.items else just("list", element=kind.element))
        else:
            return None
    return either(kinds)


def _item(container: Value, index: ast.expr, known: Knowledge) -> Value:
    if container is None:
        return None
    found: list[Value] = []
    for kind in container:
        match kind.name, index:
            case "result", ast.Constant(value=str(key)):
                found.append(_TYPES.get(catalog.result_keys(known.operators[kind.operator]).get(key, "")))
            case "list", ast.Constant(value=int()) | ast.UnaryOp():
                found.append(kind.element)
            case "tuple", ast.Constant(value=int(position)) if -len(kind.items) <= position < len(kind.items):
                found.append(kind.items[position])
            case _:
                return None
    return either(found)
