"""The state of ``paths`` at one point of a function, and what it knows about conditions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from llm_as_judge.workflow.lint.kinds import Value, either

Condition = tuple[str, bool]  # source of a test, and whether it held


@dataclass(slots=True)
class State:
    """What is true at one point on every path to it."""

    bound: set[str] = field(default_factory=set)
    likely: set[str] = field(default_factory=set)  # bound if loops run at least once
    values: dict[str, Value] = field(default_factory=dict)
    truthy: dict[str, object] = field(default_factory=dict)  # variables with a known constant
    facts: set[Condition] = field(default_factory=set)
    implied: dict[Condition, frozenset[str]] = field(default_factory=dict)
    live: bool = True
    after_loop: bool = False  # reached only by a loop that contains a return coming to its end

    def copy(self) -> State:
        return State(
            set(self.bound),
            set(self.likely),
            dict(self.values),
            dict(self.truthy),
            set(self.facts),
            dict(self.implied),
            self.live,
            self.after_loop,
        )

    def dead(self) -> State:
        state = self.copy()
        state.live = False
        return state

    def forget(self, names: Iterable[str]) -> None:
        """The variables may hold something else from here on; bound ones stay bound."""
        for name in names:
            bound, likely = name in self.bound, name in self.likely
            self.bind(name)
            if not bound:
                self.bound.discard(name)
            if not likely:
                self.likely.discard(name)

    def touch(self, name: str) -> None:
        """The object of this variable may have changed inside: what a test said of it is out of date."""
        if name in self.bound:
            self.bind(name, self.values.get(name))

    def bind(self, name: str, value: Value = None) -> None:
        self.bound.add(name)
        self.likely.add(name)
        self.values[name] = value
        self.truthy.pop(name, None)
        self.facts = {c for c in self.facts if name not in _names(c[0])}
        self.implied = {c: v for c, v in self.implied.items() if name not in _names(c[0])}

    def unbind(self, name: str) -> None:
        self.bind(name)
        self.bound.discard(name)
        self.likely.discard(name)

    def assume(self, test: ast.expr, holds: bool) -> State:
        """This state on the side of ``test``; dead if it is known to be the other."""
        state = self.copy()
        for condition in conditions(test, holds):
            if (condition[0], not condition[1]) in state.facts:
                state.live = False
            state.facts.add(condition)
            state.bound |= state.implied.get(condition, frozenset())
            state.likely |= state.implied.get(condition, frozenset())
        return state


def merge(states: Iterable[State]) -> State:
    """The state where paths meet; dead ones do not count."""
    states = list(states)
    alive = [s for s in states if s.live]
    if not alive:
        return states[0].dead() if states else State(live=False)
    first, *others = alive
    result = first.copy()
    for other in others:
        result.bound &= other.bound
        result.likely &= other.likely
        result.values = {n: either((v, other.values[n])) for n, v in result.values.items() if n in other.values}
        result.truthy = {n: v for n, v in result.truthy.items() if other.truthy.get(n) == v}
        result.facts &= other.facts
        result.implied = {c: v for c, v in result.implied.items() if other.implied.get(c) == v}
        result.after_loop = result.after_loop and other.after_loop
    return result


@functools.lru_cache(maxsize=4096)
def _names(source: str) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(ast.parse(source, mode="eval")) if isinstance(n, ast.Name))


def conditions(test: ast.expr, holds: bool) -> list[Condition]:
    """The elementary conditions that ``test`` being ``holds`` makes certain."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return conditions(inner, not holds)
        case ast.BoolOp(op=ast.And(), values=parts) if holds:
            return [c for part in parts for c in conditions(part, True)]
        case ast.BoolOp(op=ast.Or(), values=parts) if not holds:
            return [c for part in parts for c in conditions(part, False)]
        case ast.Compare(left=left, ops=[ast.IsNot() | ast.NotEq() as op], comparators=[right]):
            same = ast.Is() if isinstance(op, ast.IsNot) else ast.Eq()
            return [(ast.unparse(ast.Compare(left, [same], [right])), not holds)]
    if any(isinstance(n, (ast.Await, ast.NamedExpr, ast.Yield)) for n in ast.walk(test)):
        return []
    return [(ast.unparse(test), holds)]


def constant_of(node: ast.expr) -> object:
    """A constant worth remembering: a number, text, or a literal that is not empty."""
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]) | ast.Set(elts=[_, *_]):
            return (node.lineno, node.col_offset)  # true, and equal to itself only
        case ast.Dict(keys=[_, *_]):
            return (node.lineno, node.col_offset)
    return None


def truth_of(test: ast.expr, constants: dict[str, object]) -> bool | None:
    """Whether ``test`` holds the first time, where that is plain."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            truth = truth_of(inner, constants)
            return None if truth is None else not truth
        case ast.Name(id=name) if name in constants:
            return bool(constants[name])
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[right]) if name in constants:
            left, limit = constants[name], _known_number(right, constants)
            if isinstance(left, (int, float)) and limit is not None:
                compare = _COMPARE.get(type(op))
                return None if compare is None else compare(left, limit)
        case ast.BoolOp(op=ast.And(), values=parts):
            truths = [truth_of(part, constants) for part in parts]
            return True if all(t is True for t in truths) else None
    return None


_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.NotEq: lambda a, b: a != b,
}


def _known_number(node: ast.expr, constants: dict[str, object]) -> float | None:
    value = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    return value if isinstance(value, (int, float)) else None


def not_empty(iterable: ast.expr, state: State) -> bool:
    """The iterable surely has an element."""
    match iterable:
        case ast.Name(id=name):
            return bool(state.truthy.get(name))
        case ast.Call(func=ast.Name(id="range"), args=[stop]):
            return (_known_number(stop, state.truthy) or 0) > 0
        case ast.Call(func=ast.Name(id="range"), args=[start, stop, *_]):
            first, last = _known_number(start, state.truthy), _known_number(stop, state.truthy)
            return first is not None and last is not None and first != last
        case ast.Call(func=ast.Name(id="enumerate" | "zip" | "reversed" | "sorted" | "list"), args=[*parts]):
            return bool(parts) and all(not_empty(part, state) for part in parts)
    return constant_of(iterable) is not None
