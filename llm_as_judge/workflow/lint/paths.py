"""Paths through a function: which variables are bound on all of them, and whether all of them return.

Each statement takes a ``State`` to the next. A condition met twice is taken to hold or fail both times as
long as the variables in it stay what they were, so that code correct by such reasoning raises no alarm. What
needs a loop to run at least once is told apart (``likely``) from what is wrong on an ordinary path.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from llm_as_judge.workflow.lint.kinds import Knowledge, Value, element_of, infer
from llm_as_judge.workflow.lint.state import State, conditions, constant_of, merge, not_empty, truth_of


class Checks(Protocol):
    """What is told of every expression, in the state it is evaluated in."""

    def expression(self, node: ast.expr, state: State) -> None: ...
    def discarded(self, node: ast.expr, state: State) -> None: ...
    def returned(self, node: ast.Return, state: State) -> None: ...


@dataclass(slots=True)
class Loop:
    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)


class Flow:
    """Walks the statements of one function."""

    def __init__(self, checks: Checks, known: Knowledge) -> None:
        self._checks = checks
        self._expression = checks.expression
        self._known = known
        self._loops: list[Loop] = []
        self.nested: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, State]] = []

    def block(self, statements: Sequence[ast.stmt], state: State) -> State:
        for statement in statements:
            state = self.statement(statement, state)
        return state

    def statement(self, node: ast.stmt, state: State) -> State:
        match node:
            case ast.If():
                return self._if(node, state)
            case ast.For() | ast.AsyncFor():
                return self._for(node, state)
            case ast.While():
                return self._while(node, state)
            case ast.Try():
                return self._try(node, state)
            case ast.With() | ast.AsyncWith():
                return self._with(node, state)
            case ast.Match():
                return self._match(node, state)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
                    self._expression(default, state)
                state.bind(node.name)
                self.nested.append((node, state))
                return state
            case ast.ClassDef(name=name):
                state.bind(name)
                return state
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    state.bind(alias.asname or alias.name.partition(".")[0])
                return state
            case ast.Return():
                if node.value is not None:
                    self._expression(node.value, state)
                self._checks.returned(node, state)
                return state.dead()
            case ast.Raise():
                for part in (node.exc, node.cause):
                    if part is not None:
                        self._expression(part, state)
                return state.dead()
            case ast.Break() | ast.Continue():
                if self._loops:
                    loop = self._loops[-1]
                    (loop.breaks if isinstance(node, ast.Break) else loop.continues).append(state)
                return state.dead()
            case ast.Assert():
                self._expression(node.test, state)
                return state.assume(node.test, True) if truth_of(node.test, {}) is not False else state.dead()
        return self._simple(node, state)

    def _simple(self, node: ast.stmt, state: State) -> State:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._expression(value, state)
                for target in targets:
                    self._assign(target, value, state)
            case ast.AnnAssign(target=target, value=annotated):
                if annotated is not None:
                    self._expression(annotated, state)
                    self._assign(target, annotated, state)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self._expression(ast.copy_location(ast.Name(name, ast.Load()), node), state)
                self._expression(value, state)
                state.bind(name, None)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        state.unbind(target.id)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._expression(child, state)
                if isinstance(node, ast.Expr):
                    self._checks.discarded(node.value, state)
                for part in ast.walk(node):
                    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                        state.touch(part.value.id)  # solutions.append(...)
        return state

    def _assign(self, target: ast.expr, value: ast.expr, state: State) -> None:
        known = infer(value, state.values, self._known)
        self._bind_target(target, known, state)
        if isinstance(target, ast.Name):
            constant = constant_of(value)
            if constant is not None:
                state.truthy[target.id] = constant

    def _bind_target(self, target: ast.expr, value: Value, state: State) -> None:
        match target:
            case ast.Name(id=name):
                state.bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                items: Sequence[Value] = [element_of(value)] * len(targets)
                if value and len(value) == 1:
                    (kind,) = value
                    if kind.name == "tuple" and len(kind.items) == len(targets):
                        items = kind.items
                for inner, item in zip(targets, items, strict=True):
                    self._bind_target(inner, item, state)
            case ast.Starred(value=inner):
                self._bind_target(inner, None, state)
            case _:
                for child in ast.iter_child_nodes(target):
                    if isinstance(child, ast.expr):
                        self._expression(child, state)
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        state.touch(part.id)

    def _if(self, node: ast.If, state: State) -> State:
        self._expression(node.test, state)
        yes, no = state.assume(node.test, True), state.assume(node.test, False)
        constant = truth_of(node.test, {})
        if constant is not None:
            (no if constant else yes).live = False
        yes, no = self.block(node.body, yes), self.block(node.orelse, no)
        result = merge((yes, no))
        if yes.live and no.live:
            for side, other, holds in ((yes, no, True), (no, yes, False)):
                extra = frozenset(side.bound - result.bound)
                flags = [
                    (name, bool(value))
                    for name, value in side.truthy.items()
                    if name in other.truthy and bool(value) is not bool(other.truthy[name])
                ]
                side.facts.update(flags)
                for condition in (*conditions(node.test, holds), *flags):
                    if condition in side.facts and extra:
                        result.implied[condition] = extra | result.implied.get(condition, frozenset())
        return result

    def _for(self, node: ast.For | ast.AsyncFor, state: State) -> State:
        self._expression(node.iter, state)
        element = element_of(infer(node.iter, state.values, self._known))
        runs = not_empty(node.iter, state)

        def begin(entry: State) -> None:
            self._bind_target(node.target, element, entry)

        return self._loop(node.body, node.orelse, state, begin, runs=runs, ends=True)

    def _while(self, node: ast.While, state: State) -> State:
        self._expression(node.test, state)
        truth = truth_of(node.test, state.truthy)
        endless = truth_of(node.test, {}) is True
        return self._loop(node.body, node.orelse, state, lambda entry: None, runs=truth is True, ends=not endless)

    def _loop(
        self,
        body: Sequence[ast.stmt],
        orelse: Sequence[ast.stmt],
        state: State,
        begin: Callable[[State], None],
        *,
        runs: bool,
        ends: bool,
    ) -> State:
        """``runs``: at least once for sure. ``ends``: other than by break, return or raise."""
        entry = state.copy()
        entry.forget(_stored(body))  # a later round may find another value
        skipped = entry.copy()
        begin(entry)
        loop = Loop()
        self._loops.append(loop)
        last = self.block(body, entry)
        self._loops.pop()
        rounds = merge([last, *loop.continues])
        ended = rounds if runs else merge([skipped, rounds])
        ended.live = ended.live and ends
        if rounds.live:
            ended.likely = rounds.likely
        ended.after_loop = ended.after_loop or _returns(body)
        ended = self.block(orelse, ended)
        result = merge([ended, *loop.breaks])
        left = merge(loop.breaks)
        if left.live and not rounds.live:
            result.likely = left.likely
        return result

    def _try(self, node: ast.Try, state: State) -> State:
        before = state.copy()
        after = self.block(node.body, state)
        entry = before.copy()
        entry.forget(_stored(node.body))
        ends = [self.block(node.orelse, after)]
        for handler in node.handlers:
            caught = entry.copy()
            if handler.type is not None:
                self._expression(handler.type, caught)
            if handler.name:
                caught.bind(handler.name)
            caught = self.block(handler.body, caught)
            if handler.name:
                caught.unbind(handler.name)
            ends.append(caught)
        result = merge(ends)
        if node.finalbody:
            final = self.block(node.finalbody, entry.copy())
            result.bound |= final.bound
            result.likely |= final.likely
            result.live = result.live and final.live
        return result

    def _with(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        swallows = False
        for item in node.items:
            self._expression(item.context_expr, state)
            swallows = swallows or "suppress" in ast.unparse(item.context_expr)
            if item.optional_vars is not None:
                self._bind_target(item.optional_vars, None, state)
        before = state.copy()
        after = self.block(node.body, state)
        return merge((before, after)) if swallows else after

    def _match(self, node: ast.Match, state: State) -> State:
        self._expression(node.subject, state)
        ends: list[State] = []
        complete = False
        for case in node.cases:
            branch = state.copy()
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    branch.bind(name)
            if case.guard is not None:
                self._expression(case.guard, branch)
            ends.append(self.block(case.body, branch))
            wildcard = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            complete = complete or (wildcard and case.guard is None)
        return merge(ends if complete else [*ends, state])


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    nodes = (n for statement in body for n in ast.walk(statement))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}


def _returns(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Return) for s in body for n in ast.walk(s))
