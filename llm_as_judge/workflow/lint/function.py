"""The checks of one function: definite assignment over its statements, and the answers that it returns.

Branches join, and a loop may run zero times unless it goes over a literal or a constant range. A check is about what a
statement does whenever it is reached, not whether it is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llm_as_judge.workflow.lint.assignment import (
    Assigned,
    Function,
    bound_names,
    captured,
    join,
    never_empty,
    parameters_of,
    stored,
)
from llm_as_judge.workflow.lint.expressions import ExpressionCheck, Scope
from llm_as_judge.workflow.lint.inference import TEXT, Inferred, element_of, joined, names_in

_NOT_TEXT = {"list": "a list", "dict": "a dict", "call": "a call that is not awaited", "operator": "an operator"}


class FunctionCheck(ExpressionCheck):
    """Checks a method, or a function nested in one.

    ``self_name`` is what the function calls the object (default: its first parameter).
    """

    def __init__(
        self, scope: Scope, function: Function, *, self_name: str | None = None, outer: frozenset[str] = frozenset()
    ) -> None:
        self._function = function
        parameters = parameters_of(function)
        if self_name is None:
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
            self_name = "" if static or not parameters else parameters[0]
        names = replace(scope.names, self_name=self_name)
        local = bound_names(function.body, parameters)
        super().__init__(scope, names, Assigned(bound=set(parameters)), local, outer)
        self._breaks: list[list[Assigned]] = []
        self._continues: list[list[Assigned]] = []
        self._nested: list[Function] = []
        self._answers = False

    def run(self, *, answers: bool = False) -> None:
        """``answers``: the function is ``__call__``, whose value is the workflow's answer."""
        self._answers = answers
        self._block(self._function.body)
        if answers and self._state.live:
            self._report("W304", "__call__ can end without an answer", self._function.body[-1])
        for nested in self._nested:
            outer = self._outer | self._locals
            FunctionCheck(self._scope, nested, self_name=self._names.self_name, outer=outer).run()

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._state.live:
                self.visit(statement)
            else:
                self._unreachable(statement)

    def _unreachable(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and self._operator(node.func):
                self._report("W206", f"{ast.unparse(node.func)} is called where no path leads", node)
            elif isinstance(node, ast.Attribute):
                self._scope.used.add(node.attr)

    def _branch(self, statements: Sequence[ast.stmt], start: Assigned) -> Assigned:
        """The state at the end of ``statements``."""
        before, self._state = self._state, start.copy()
        self._block(statements)
        end, self._state = self._state, before
        return end

    def _bind(self, target: ast.expr, value: Inferred | None) -> None:
        match target:
            case ast.Name(id=name):
                self._state.bound.add(name)
                self._state.values[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                exact = value and value.kind == "tuple" and len(value.items) == len(targets)
                items = value.items if value and exact else [element_of(value)] * len(targets)
                for inner, item in zip(targets, items, strict=True):
                    self._bind(inner, item)
            case ast.Starred(value=inner):
                self._bind(inner, None)
            case _:
                for part in ast.iter_child_nodes(target):
                    self.visit(part)
                self._state.forget(names_in(target))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target, self._value(node.value))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        value = self._value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, self._value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._check_name(node.target)
        self.visit(node.value)
        if self._value(node.target) == TEXT:
            self._check_sum(node.op, node.value)
        self._bind(node.target, None)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._check_name(target)
                self._state.bound.discard(target.id)
            else:
                self.visit(target)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)
        self._check_discarded(node.value)
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item]):
                held = self._state.values.get(name)
                if held and held.kind == "list":
                    self._state.values[name] = joined(held, Inferred("list", items=(self._value(item),)))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
        if self._answers:
            self._check_answer(node)
        self._state.live = False

    def visit_Raise(self, node: ast.Raise) -> None:
        self.generic_visit(node)
        self._state.live = False

    def visit_Break(self, node: ast.Break) -> None:
        self._breaks[-1].append(self._state.copy())
        self._state.live = False

    def visit_Continue(self, node: ast.Continue) -> None:
        self._continues[-1].append(self._state.copy())
        self._state.live = False

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._state = join([self._branch(node.body, self._state), self._branch(node.orelse, self._state)])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        element = element_of(self._value(node.iter))
        self._state.forget(stored(node.body))  # a later round may find another value
        skipped = None if never_empty(node.iter) else self._state.copy()
        self._bind(node.target, element)
        self._loop(node, skipped)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self._state.forget(stored(node.body))
        self.visit(node.test)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node, None if endless else self._state.copy(), endless=endless)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, skipped: Assigned | None, endless: bool = False) -> None:
        """``skipped``: the state after no round (None: there is one). ``endless``: only break and return end it."""
        self._breaks.append([])
        self._continues.append([])
        rounds = [self._branch(node.body, self._state), *self._continues.pop()]
        end = join([*([skipped] if skipped else []), *rounds])
        end.live = end.live and not endless
        breaks = self._breaks.pop()
        self._state = join([self._branch(node.orelse, end), *breaks])

    def visit_Try(self, node: ast.Try) -> None:
        interrupted = self._state.copy()
        interrupted.forget(stored(node.body))
        self._state = self._branch(node.body, self._state)
        ends = [self._branch(node.orelse, self._state)]
        for handler in node.handlers:
            self._state = interrupted.copy()
            if handler.type is not None:
                self.visit(handler.type)
            self._state.bound |= {handler.name} if handler.name else set()
            self._block(handler.body)
            self._state.bound -= {handler.name} if handler.name else set()
            ends.append(self._state)
        self._state = join(ends)
        if node.finalbody:
            final = self._branch(node.finalbody, interrupted)
            self._state.bound |= final.bound
            self._state.forget(stored(node.finalbody))
            self._state.live = self._state.live and final.live

    def visit_TryStar(self, node: Any) -> None:  # Python 3.11
        self.visit_Try(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, None)
        before = self._state.copy()
        self._block(node.body)
        if any("suppress" in ast.unparse(item.context_expr) for item in node.items):
            before.forget(stored(node.body))
            self._state = join([before, self._state])

    visit_AsyncWith = visit_With

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        ends, complete = [], False
        for case in node.cases:
            start = self._state.copy()
            start.bound |= set(captured(case.pattern))
            start.forget(captured(case.pattern))
            self._state, outside = start, self._state
            if case.guard is not None:
                self.visit(case.guard)
            self._block(case.body)
            ends.append(self._state)
            self._state = outside
            always = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
            complete = complete or always
        self._state = join(ends if complete else [*ends, self._state])

    def visit_FunctionDef(self, node: Function) -> None:
        for default in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        self._bind(ast.Name(node.name, ast.Store()), None)
        self._nested.append(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(ast.Name(node.name, ast.Store()), None)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(ast.Name(alias.asname or alias.name.partition(".")[0], ast.Store()), None)

    visit_ImportFrom = visit_Import

    def _check_answer(self, node: ast.Return) -> None:
        answer = node.value
        if isinstance(answer, ast.Tuple) and answer.elts:
            answer = answer.elts[0]
        if answer is None or (isinstance(answer, ast.Constant) and answer.value is None):
            self._report("W304", "the answer is None on this path", node)
            return
        value = self._value(answer)
        if value and value.kind == "result":
            take = self._keys(value.operator)
            self._report("W401", f"the answer is {value.operator}'s whole result; take {take}", node)
        elif value and value.kind in _NOT_TEXT:
            self._report("W401", f"the answer is {_NOT_TEXT[value.kind]}", node)
