"""What a workflow's variables hold at a point of a function: which are bound, and what is known about their values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from llm_as_judge.operators import catalog, published
from llm_as_judge.operators.catalog import Operators

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Value(NamedTuple):
    """``operator``, ``call`` (not yet awaited) and ``result`` name their operator."""

    kind: Literal["operator", "call", "result", "list", "dict", "text"]
    operator: str = ""


TEXT, DICT, LIST = Value("text"), Value("dict"), Value("list")
_TASKS = ("create_task", "ensure_future", "wait_for", "shield")


@dataclass(frozen=True, slots=True)
class NameTable:
    """The operators that a function may use, and the names under which it finds them."""

    operators: Operators
    attributes: Mapping[str, str]  # self.attribute -> operator
    modules: frozenset[str] = frozenset(("operator",))  # names of the operators' module
    imported: Mapping[str, str] = field(default_factory=dict)  # from ...operator import Custom
    self_name: str = "self"

    def operator_built(self, function: ast.expr) -> str | None:
        """The name in ``operator.Name`` or an imported ``Name``, whether or not there is such an operator."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.modules:
                return published.own_name(name)
            case ast.Name(id=name):
                return self.imported.get(name)
        return None

    def result_type(self, operator: str, key: Any) -> str | None:
        """Type word of a key of the operator's result; None if there is no such key."""
        return catalog.result_keys(self.operators[operator]).get(published.spellings(operator).get(key, key))

    def value(self, node: ast.expr, variables: Mapping[str, Value | None]) -> Value | None:
        """The value of an expression, given those of the local variables; None if it is not known."""

        def of(inner: ast.expr) -> Value | None:
            return self.value(inner, variables)

        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return TEXT
            case ast.List() | ast.ListComp() | ast.Set() | ast.SetComp():
                return LIST
            case ast.Dict() | ast.DictComp():
                return DICT
            case ast.Name(id=name):
                return variables.get(name)
            case ast.NamedExpr(value=inner):
                return of(inner)
            case ast.Attribute(value=ast.Name(id=self.self_name), attr=name) if name in self.attributes:
                return Value("operator", self.attributes[name])
            case ast.IfExp(body=first, orelse=second) | ast.BoolOp(values=[first, second]):
                return of(first) if of(first) == of(second) else None
            case ast.Await(value=inner) if (awaited := of(inner)) and awaited.kind == "call":
                return Value("result", awaited.operator)
            case ast.Subscript(value=holder, slice=ast.Constant(value=key)) if held := of(holder):
                is_text = held.kind == "result" and self.result_type(held.operator, key) == "str"
                return TEXT if is_text else None
            case ast.Call(func=function, args=arguments):
                built = self.operator_built(function)
                if built is not None:
                    return Value("operator", built) if built in self.operators else None
                called = of(function)
                if called and called.kind == "operator":
                    return Value("call", called.operator)
                if isinstance(function, ast.Attribute) and function.attr in _TASKS and arguments:
                    task = of(arguments[0])
                    return task if task and task.kind == "call" else None
                return TEXT if isinstance(function, ast.Name) and function.id == "str" else None
        return None


def element_of(value: Value | None) -> Value | None:
    """What iterating over ``value`` gives."""
    return TEXT if value and value.kind in ("text", "result") else None


@dataclass(slots=True)
class Assigned:
    """Variables bound on every path to a point, and their known values; ``live`` is False if no path leads there."""

    bound: set[str] = field(default_factory=set)
    values: dict[str, Value | None] = field(default_factory=dict)
    live: bool = True

    def copy(self) -> Assigned:
        return Assigned(set(self.bound), dict(self.values), self.live)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.values.pop(name, None)


def join(states: Iterable[Assigned]) -> Assigned:
    """The state where paths meet; those that end before do not count."""
    live = [state for state in states if state.live]
    if not live:
        return Assigned(live=False)
    values = {n: v for n, v in live[0].values.items() if all(state.values.get(n) == v for state in live)}
    return Assigned(set.intersection(*(state.bound for state in live)), values)


def rounds(iterable: ast.expr) -> int | None:
    """The number of elements of a literal or a range of constants; None if it is not known."""
    match iterable:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if not any(
            isinstance(e, ast.Starred) for e in elements
        ):
            return len(elements)
        case ast.Constant(value=str(text)):
            return len(text)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
            return max(0, stop)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))]):
            return max(0, stop - start)
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            return rounds(inner)
    return None


def stored(body: Sequence[ast.stmt]) -> list[str]:
    """The variables that ``body`` may change."""
    nodes = (node for statement in body for node in ast.walk(statement))
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))]


def captured(pattern: ast.pattern) -> Iterator[str]:
    """The names that a ``case`` pattern binds."""
    for part in ast.walk(pattern):
        name = getattr(part, "name", None) or getattr(part, "rest", None)
        if isinstance(name, str):
            yield name


def names_in(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def bound_names(body: Iterable[ast.AST], parameters: Iterable[str] = ()) -> frozenset[str]:
    """The names that a module or a function binds, without those of functions and classes inside it."""
    names, elsewhere, todo = set(parameters), set[str](), list(body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                names.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
            case ast.pattern():
                names.update(captured(node))
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
        todo.extend(ast.iter_child_nodes(node))
    return frozenset(names - elsewhere)
