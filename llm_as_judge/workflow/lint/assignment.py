"""Definite assignment: the variables bound on every path to a point of a function, with their values where known."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from llm_as_judge.workflow.lint.inference import Inferred, joined

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Assigned:
    """Variables bound on every path to a point, and their known values; ``live`` is False if no path leads there."""

    bound: set[str] = field(default_factory=set)
    values: dict[str, Inferred | None] = field(default_factory=dict)
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
    result, *others = live
    for other in others:
        values = {n: joined(v, other.values[n]) for n, v in result.values.items() if n in other.values}
        result = Assigned(result.bound & other.bound, values)
    return result


def never_empty(iterable: ast.expr) -> bool:
    """A literal, or a range of constants, with at least one element."""
    match iterable:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return any(not isinstance(element, ast.Starred) for element in elements)
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
            return stop > 0
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))]):
            return stop > start
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            return never_empty(inner)
    return False


def stored(body: Sequence[ast.stmt]) -> list[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))]


def captured(pattern: ast.pattern) -> Iterator[str]:
    for part in ast.walk(pattern):
        name = getattr(part, "name", None) or getattr(part, "rest", None)
        if isinstance(name, str):
            yield name


def parameters_of(function: Function) -> list[str]:
    given = function.args
    stars = [argument for argument in (given.vararg, given.kwarg) if argument]
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, *stars)]


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
