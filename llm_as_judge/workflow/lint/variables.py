"""Known values of a workflow's variables at a point of a function, and which variables are bound."""

import ast
from collections.abc import Iterable
from typing import Literal, NamedTuple

Def = ast.FunctionDef | ast.AsyncFunctionDef


class Known(NamedTuple):
    """``operator``, unawaited ``call`` and ``result`` name their operator, a ``list`` that of a whole result in it."""

    kind: Literal["operator", "call", "result", "list", "dict", "text", "model"]
    operator: str = ""


class State(dict[str, "Known | None"]):
    """Variables bound on every path to a point, and their known values; ``live`` is False if no path leads there."""

    live = True

    def copy(self) -> "State":
        other = State(self)
        other.live = self.live
        return other

    def forget(self, names: Iterable[str]) -> None:
        """Mark the values of these names as unknown."""
        self.update(dict.fromkeys(self.keys() & names))


def merged(states: Iterable[State]) -> State:
    """Join the states where paths meet; paths that ended before are left out."""
    live = [state for state in states if state.live]
    if not live:
        ended = State()
        ended.live = False
        return ended
    names = set.intersection(*(set(state) for state in live))
    return State({n: live[0][n] if all(state[n] == live[0][n] for state in live) else None for n in names})


def element_of(value: Known | None) -> Known | None:
    """Return the value of an element of ``value``."""
    return Known("text") if value and value.kind in ("text", "result") else None


def rounds(iterable: ast.expr) -> int | None:
    """Count the elements of a literal or a range of constants; None if it is not known."""
    match iterable:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return None if any(isinstance(e, ast.Starred) for e in elements) else len(elements)
        case ast.Constant(value=str(text)):
            return len(text)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
            return max(0, stop)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))]):
            return max(0, stop - start)
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            return rounds(inner)
    return None


def bound_names(body: Iterable[ast.AST]) -> set[str]:
    """Find the names that a module or a function binds, without those of functions and classes inside it."""
    names, elsewhere, todo = set[str](), set[str](), list(body)
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
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
        todo.extend(ast.iter_child_nodes(node))
    return names - elsewhere
