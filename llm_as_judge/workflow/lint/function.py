"""Checks of statements: definite assignment over the paths of a scope, and the answers that ``__call__`` returns.

States of branches are joined, and a loop may run zero times unless it iterates over a literal or a constant range.
Findings are about what happens if a statement is reached, not about whether it is.
"""

import ast
from collections.abc import Collection, Sequence

from llm_as_judge.workflow.lint.expressions import ExpressionCheck, Scope
from llm_as_judge.workflow.lint.variables import Def, State, bound_names, element_of, merged, rounds

_NOT_TEXT = {"list": "a list", "dict": "a dict", "call": "a call that is not awaited", "operator": "an operator"}


class ScopeCheck(ExpressionCheck):
    """Checks a body, then the functions defined in it; ``answers``: it is ``__call__``'s, which returns the answer."""

    def __init__(
        self, scope: Scope, body: Sequence[ast.stmt], parameters: Collection[str] = (), outer: Collection[str] = (),
        self_name: str = "", answers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(scope, State(dict.fromkeys(parameters)), bound_names(body).union(parameters), outer, self_name)
        self._body, self._answers = body, answers
        self._breaks: list[list[State]] = []
        self._continues: list[list[State]] = []
        self._nested: list[tuple[Def, ast.ClassDef | None]] = []
        self._class: ast.ClassDef | None = None  # whose body is being read

    def run(self) -> None:
        self._block(self._body)
        if self._answers and self._state.live:
            self._report("W304", "__call__ can end without an answer", self._body[-1])
        outer = {*self._outer, *self._locals}
        for function, cls in self._nested:
            parameters = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
            of_workflow = cls is not None and cls.name == "Workflow"
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
            own = parameters[0] if of_workflow and parameters and not static else ""
            name, answers = self._self if cls is None else own, of_workflow and function.name == "__call__"
            ScopeCheck(self._scope, function.body, parameters, outer, name, answers).run()

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._state.live:
                self.visit(statement)
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and self._is("operator", node.func):
                    self._report("W206", f"{ast.unparse(node.func)} is called where no path leads", node)

    def _branch(self, statements: Sequence[ast.stmt], start: State) -> State:
        """Compute the state at the end of ``statements``."""
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
        if self._scope.annotations and (self._class or not self._outer):  # in functions they are not evaluated
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, self._value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))
        self.visit(node.value)
        self._bind(node.target, None)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)
        self._check_discarded(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        if self._answers:
            self._check_answer(node)
        self._state.live = False

    def visit_Raise(self, node: ast.Raise) -> None:
        self.generic_visit(node)
        self._state.live = False

    def _jump(self, node: ast.Break | ast.Continue) -> None:
        (self._breaks if isinstance(node, ast.Break) else self._continues)[-1].append(self._state.copy())
        self._state.live = False

    visit_Break = visit_Continue = _jump

    def visit_If(self, node: ast.If) -> None:
        if not self._outer and any(name in ast.unparse(node.test) for name in ("__name__", "TYPE_CHECKING")):
            self._state.update(dict.fromkeys(bound_names([node])))  # not taken when the sandbox imports the text
            return
        self.visit(node.test)
        self._state = merged([self._branch(node.body, self._state), self._branch(node.orelse, self._state)])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        element = element_of(self._value(node.iter))
        self._state.forget(bound_names(node.body))  # a later round may find another value
        skipped = [] if rounds(node.iter) else [self._state.copy()]
        self._bind(node.target, element)
        self._loop(node, skipped)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self._state.forget(bound_names(node.body))
        self.visit(node.test)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node, [] if endless else [self._state.copy()], endless=endless)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, skipped: list[State], endless: bool = False) -> None:
        """Follow a loop; ``skipped``: state after no round, if possible; ``endless``: only break and return end it."""
        self._breaks.append([])
        self._continues.append([])
        end = merged([*skipped, self._branch(node.body, self._state), *self._continues.pop()])
        end.live = end.live and not endless
        self._state = merged([self._branch(node.orelse, end), *self._breaks.pop()])

    def visit_Try(self, node: ast.Try) -> None:
        interrupted = self._state.copy()
        interrupted.forget(bound_names(node.body))
        self._state = self._branch(node.body, self._state)
        ends = [self._branch(node.orelse, self._state)]
        for handler in node.handlers:
            self._state = interrupted.copy()
            if handler.type is not None:
                self.visit(handler.type)
            self._state.update({handler.name: None} if handler.name else {})
            self._block(handler.body)
            self._state.pop(handler.name or "", None)
            ends.append(self._state)
        self._state = merged(ends)
        if node.finalbody:
            final = self._branch(node.finalbody, interrupted)
            self._state.update(dict.fromkeys(final.keys() - self._state.keys()))
            self._state.forget(bound_names(node.finalbody))
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
            self._state.update(dict.fromkeys(bound_names([case.pattern])))
            if case.guard is not None:
                self.visit(case.guard)
            self._block(case.body)
            ends.append(self._state)
            complete |= isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern and not case.guard
        self._state = merged(ends if complete else [*ends, before])

    def visit_FunctionDef(self, node: Def) -> None:
        arguments = node.args
        parts = [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults]
        if self._scope.annotations:
            parts += [node.returns, *(a.annotation for a in ast.walk(arguments) if isinstance(a, ast.arg))]
        for part in filter(None, parts):
            self.visit(part)
        self._state[node.name] = None
        self._nested.append((node, self._class))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        outside = self._state, self._locals, self._class
        self._state, self._locals, self._class = self._state.copy(), self._locals | bound_names(node.body), node
        self._block(node.body)
        self._state, self._locals, self._class = outside
        self._state[node.name] = None

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._state.update(dict.fromkeys(bound_names([node])))

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
