"""The checks of one function: definite assignment over its statements, and the answers that it returns.

Branches join, and a loop may run zero times unless it goes over a literal or a constant range. A check is about what a
statement does whenever it is reached, not whether it is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from llm_as_judge.workflow.lint.expressions import ExpressionCheck, Scope
from llm_as_judge.workflow.lint.values import (
    Assigned,
    Function,
    bound_names,
    captured,
    element_of,
    join,
    rounds,
    stored,
)

_NOT_TEXT = {"list": "a list", "dict": "a dict", "call": "a call that is not awaited", "operator": "an operator"}


class FunctionCheck(ExpressionCheck):
    """Checks a method, or a function nested in one.

    ``self_name`` is what the function calls the object (default: its first parameter).
    """

    def __init__(
        self, scope: Scope, function: Function, *, self_name: str | None = None, outer: frozenset[str] = frozenset()
    ) -> None:
        parameters = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
        if self_name is None:
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
            places = [*function.args.posonlyargs, *function.args.args]
            self_name = "" if static or not places else places[0].arg
        names = replace(scope.names, self_name=self_name)
        local = bound_names(function.body, parameters)
        super().__init__(scope, names, Assigned(bound=set(parameters)), local, outer)
        self._function = function
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
                continue
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
        self._bind(node.target, None)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)
        self._check_discarded(node.value)

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
        skipped = [] if rounds(node.iter) else [self._state.copy()]
        self._bind(node.target, element)
        self._loop(node, skipped)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self._state.forget(stored(node.body))
        self.visit(node.test)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node, [] if endless else [self._state.copy()], endless=endless)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, skipped: list[Assigned], endless: bool = False) -> None:
        """``skipped``: the state after no round, if that can happen. ``endless``: only break and return end it."""
        self._breaks.append([])
        self._continues.append([])
        end = join([*skipped, self._branch(node.body, self._state), *self._continues.pop()])
        end.live = end.live and not endless
        self._state = join([self._branch(node.orelse, end), *self._breaks.pop()])

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

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, None)
        self._block(node.body)

    visit_AsyncWith = visit_With

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        before, ends, complete = self._state, [], False
        for case in node.cases:
            self._state = before.copy()
            self._state.bound |= set(captured(case.pattern))
            self._state.forget(captured(case.pattern))
            if case.guard is not None:
                self.visit(case.guard)
            self._block(case.body)
            ends.append(self._state)
            always = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
            complete = complete or always
        self._state = join(ends if complete else [*ends, before])

    def visit_FunctionDef(self, node: Function) -> None:
        for default in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        self._state.bound.add(node.name)
        self._nested.append(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._state.bound.add(node.name)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._state.bound |= bound_names([node])

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
