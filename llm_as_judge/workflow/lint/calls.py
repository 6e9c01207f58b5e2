"""The checks of one function: names, operator calls, keys of results, answers. Paths are ``paths``'."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator as standard_operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.operators import catalog, published
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.kinds import (
    Knowledge,
    Value,
    comprehension_variables,
    infer,
    operator_built,
    operators_of,
)
from llm_as_judge.workflow.lint.paths import Flow
from llm_as_judge.workflow.lint.state import State

Function = ast.FunctionDef | ast.AsyncFunctionDef
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__doc__", "__class__"}
_OF_OPERATORS = ("name", "llm")
_NO_ANSWER: Mapping[str, str] = {
    "none": "None",
    "bool": "a bool",
    "list": "a list",
    "dict": "a dict",
    "call": "a call that is not awaited",
    "operator": "an operator",
}


@dataclass(slots=True)
class Scope:
    """What the functions of a class share. ``attributes`` None: any may be set by a base class."""

    knowledge: Knowledge
    module_names: frozenset[str]
    attributes: set[str] | None
    operators: Operators
    report: Report
    used: set[str] = field(default_factory=set)  # attributes of self that are read


class FunctionLint:
    """Checks one method, or one function nested in it, with what its surroundings bind.

    ``self_name`` is what the function calls the object; None: its first parameter.
    """

    def __init__(
        self,
        scope: Scope,
        function: Function,
        *,
        answers: bool = False,
        outer: frozenset[str] = frozenset(),
        outer_values: Mapping[str, Value] | None = None,
        self_name: str | None = None,
    ) -> None:
        self._scope = scope
        self._function = function
        self._answers = answers
        self._outer = outer
        self._outer_values = outer_values or {}
        self._self = first_parameter(function) if self_name is None else self_name
        self._locals = bound_in(function)
        scope.knowledge.self_name = self._self

    def run(self) -> None:
        state = State(values=dict(self._outer_values))
        for argument in parameters_of(self._function):
            state.bind(argument)
        flow = Flow(self, self._scope.knowledge)
        end = flow.block(self._function.body, state)
        if end.live and self._answers:
            code = "W305" if end.after_loop else "W304"
            self._scope.report(code, "__call__ can end without a return", self._function.body[-1])
        for nested, at in flow.nested:
            FunctionLint(
                self._scope,
                nested,
                outer=self._outer | frozenset(self._locals),
                outer_values={n: v for n, v in at.values.items() if operators_of(v, "operator")},
                self_name=self._self,
            ).run()
            self._scope.knowledge.self_name = self._self

    def returned(self, node: ast.Return, state: State) -> None:
        if not self._answers or not state.live:
            return
        answer = node.value
        if isinstance(answer, ast.Tuple) and answer.elts:
            answer = answer.elts[0]
        if answer is None:
            self._scope.report("W401", "the answer is None", node)
            return
        value = infer(answer, state.values, self._scope.knowledge)
        if not value or isinstance(answer, ast.Starred):
            return
        if all(kind.name == "result" for kind in value):
            operator = operators_of(value, "result")[0]
            keys = ", ".join(f"[{key!r}]" for key in self._class(operator).RESULT)
            self._scope.report("W401", f"the answer is {operator}'s whole result; take {keys}", node)
        elif all(kind.name in _NO_ANSWER for kind in value):
            kinds = " or ".join(sorted({_NO_ANSWER[kind.name] for kind in value}))
            if kinds != "a bool" or isinstance(answer, ast.Constant):
                self._scope.report("W401", f"the answer is {kinds}", node)

    def expression(self, node: ast.expr, state: State) -> None:
        if not state.live:
            for part in ast.walk(node):
                if isinstance(part, ast.Call) and self._called(part, state):
                    self._scope.report("W206", f"{ast.unparse(part.func)} is called where nothing leads", part)
                    self._use(part.func)
            return
        _Visitor(self, state).visit(node)

    def _class(self, name: str) -> Any:
        return self._scope.knowledge.operators[name]

    def _called(self, node: ast.Call, state: State) -> list[str]:
        return operators_of(infer(node.func, state.values, self._scope.knowledge), "operator")

    def _use(self, node: ast.expr) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                self._scope.used.add(part.attr)

    def check_name(self, node: ast.Name, state: State) -> None:
        name = node.id
        if name in self._locals:
            if name not in state.likely:
                self._scope.report("W301", f"{name} may be unbound here", node)
            elif name not in state.bound:
                self._scope.report("W302", f"{name} is unbound here if the loop above does not run", node)
            state.bound.add(name)  # say it once
            state.likely.add(name)
        elif name not in self._outer and name not in self._scope.module_names and name not in BUILTINS:
            self._scope.report("W303", f"{name} is not defined", node)

    def check_attribute(self, node: ast.Attribute, state: State) -> None:
        results = operators_of(infer(node.value, state.values, self._scope.knowledge), "result")
        if results and not hasattr(dict, node.attr):
            keys = ", ".join(f"[{key!r}]" for key in self._class(results[0]).RESULT)
            self._scope.report("W207", f"{results[0]}'s result is a dict without .{node.attr}; it has {keys}", node)
        if (called := operators_of(infer(node.value, state.values, self._scope.knowledge), "operator")) and (
            node.attr not in _OF_OPERATORS and not node.attr.startswith("__")
        ):
            self._scope.report("W202", f"the operator {called[0]} has no .{node.attr}: call it", node)
        if not (isinstance(node.value, ast.Name) and node.value.id == self._self):
            return
        self._scope.used.add(node.attr)
        known = self._scope.attributes
        if known is not None and node.attr not in known and not node.attr.startswith("__"):
            self._scope.report("W202", f"self.{node.attr} is used but not set in __init__", node)

    def check_call(self, node: ast.Call, state: State) -> None:
        built = operator_built(node.func, self._scope.knowledge)
        if built is not None:
            self._check_built(built, node)
        for name in self._called(node, state)[:1]:
            signature = catalog.signature(self._class(name))
            options = aflow.OPTIONS - signature.parameters.keys()
            keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in options]
            if aflow.form(published.forms(name), len(node.args), keywords) is None:
                self._bind(name, signature, node.args, node, skip=options)
        for argument in (*node.args, *(k.value for k in node.keywords)):
            value = infer(argument, state.values, self._scope.knowledge)
            if self._called(node, state) and operators_of(value, "call"):
                self._scope.report("W204", f"{operators_of(value, 'call')[0]}'s call is not awaited", argument)
        match node.func:
            case (
                ast.Attribute(value=ast.Name(id=holder_name), attr=model)
                | ast.Attribute(value=ast.Attribute(value=ast.Name(id=holder_name), attr=model))
            ) if holder_name == self._self and model in self._scope.knowledge.models:
                if ast.unparse(node.func) != f"{self._self}.{model}.get_usage_summary":
                    self._scope.report("W209", f"{ast.unparse(node.func)} cannot be called: use an operator", node)
            case ast.Attribute(value=holder, attr="get") if node.args:
                self._check_key(holder, node.args[0], node, state, "W208")

    def _check_built(self, name: str, node: ast.Call) -> None:
        if name in self._scope.operators:
            self._bind(name, catalog.init_signature(self._class(name)), node.args[1:], node, skip=("llm", "name"))
        elif not hasattr(standard_operator, name):
            there = ", ".join(self._scope.operators)
            self._scope.report("W201", f"there is no operator {name}; there are {there}", node)

    def _bind(
        self,
        name: str,
        signature: inspect.Signature,
        positional: list[ast.expr],
        node: ast.Call,
        skip: Collection[str] = (),
    ) -> None:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return
        keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in skip]
        try:
            signature.bind(*positional, **dict.fromkeys(keywords))
        except TypeError as error:
            self._scope.report("W203", f"{catalog.call_line(self._class(name))}: {error}", node)

    def check_sum(self, node: ast.BinOp, state: State) -> None:
        for part in (node.left, node.right):
            if results := operators_of(infer(part, state.values, self._scope.knowledge), "result"):
                keys = ", ".join(f"[{key!r}]" for key in self._class(results[0]).RESULT)
                self._scope.report("W211", f"{results[0]}'s whole result is added to something; take {keys}", part)

    def check_subscript(self, node: ast.Subscript, state: State) -> None:
        self._check_key(node.value, node.slice, node, state, "W207")

    def _check_key(self, holder: ast.expr, key: ast.expr, node: ast.expr, state: State, code: str) -> None:
        value = infer(holder, state.values, self._scope.knowledge)
        unawaited = operators_of(value, "call")
        if unawaited:
            self._scope.report("W204", f"{unawaited[0]}'s call is not awaited", node)
        results = operators_of(value, "result")
        if not isinstance(key, ast.Constant):
            return
        if code == "W207" and isinstance(key.value, str) and value and all(kind.name == "string" for kind in value):
            self._scope.report("W207", f"{ast.unparse(holder)[:80]} is a string and has no key {key.value!r}", node)
        if not results:
            return
        if not any(
            key.value in catalog.result_keys(self._class(name)) or key.value in published.spellings(name)
            for name in results
        ):
            there = ", ".join(self._class(results[0]).RESULT)
            self._scope.report(code, f"{results[0]}'s result has no key {key.value!r}; it has {there}", node)

    def discarded(self, node: ast.expr, state: State) -> None:
        """An expression that is a whole statement or is made text: no place for an operator's bare call."""
        if isinstance(node, ast.Call) and state.live and self._called(node, state):
            self._scope.report("W204", f"{self._called(node, state)[0]}'s call is not awaited", node)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, state: State) -> State:
        inner = state.copy()
        inner.values = comprehension_variables(node, state.values, self._scope.knowledge)
        return inner


class _Visitor(ast.NodeVisitor):
    """Calls the checks for the parts of one expression; comprehensions and lambdas have own names."""

    def __init__(self, checks: FunctionLint, state: State) -> None:
        self._checks = checks
        self._state = state
        self._inner: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and not any(node.id in names for names in self._inner):
            self._checks.check_name(node, self._state)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._state.bind(node.target.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._checks.check_attribute(node, self._state)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        self._checks.check_call(node, self._state)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            self._checks.check_sum(node, self._state)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        self._checks.check_subscript(node, self._state)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self.generic_visit(node)
        self._checks.discarded(node.value, self._state)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        self._within({a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}, [node.body])

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, parts: list[ast.expr]
    ) -> None:
        self.visit(node.generators[0].iter)
        names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        outer, self._state = self._state, self._checks.comprehension(node, self._state)
        later = [g.iter for g in node.generators[1:]]
        self._within(names, [*later, *(test for g in node.generators for test in g.ifs), *parts])
        self._state = outer

    def _within(self, names: set[str], parts: list[ast.expr]) -> None:
        self._inner.append(names)
        for part in parts:
            self.visit(part)
        self._inner.pop()

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node, [node.key, node.value])


def first_parameter(function: Function) -> str:
    """What a method calls the object; ``""`` for a static one."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return parameters[0].arg if parameters and not static else ""


def parameters_of(function: Function) -> list[str]:
    return [a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)]


def bound_in(function: Function) -> set[str]:
    """The function's own local variables."""
    names = set(parameters_of(function))
    elsewhere: set[str] = set()
    todo: list[ast.AST] = list(function.body)
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
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
        todo.extend(ast.iter_child_nodes(node))
    return names - elsewhere
