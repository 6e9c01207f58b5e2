"""The checks of expressions: names, operator calls, keys of results."""

import ast
import inspect
import operator as standard_operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llm_as_judge.answers.code import BUILTINS, names_in
from llm_as_judge.operators import catalog
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.imports import Imports
from llm_as_judge.workflow.lint.variables import Known, State, element_of

_GIVEN = BUILTINS | {"__name__", "__doc__", "__class__"}
_TASKS = ("create_task", "ensure_future", "wait_for", "shield")
TEXT = Known("text")


@dataclass(frozen=True, slots=True)
class Scope:
    """State shared by all functions of a workflow. ``attributes`` is None if a base class may set any."""

    operators: Operators
    executors: Collection[str]  # named ones
    imports: Imports
    module_names: Collection[str]
    attributes: Collection[str] | None
    places: Mapping[str, Known]  # source of an attribute or item -> the operator or model that __init__ puts there
    annotations: bool  # whether Python evaluates them
    report: Report


class ExpressionCheck(ast.NodeVisitor):
    """Checks expressions in ``state``, in which it binds names; ``self_name`` is the function's name for the object."""

    def __init__(self, scope: Scope, state: State, local: set[str], outer: Collection[str], self_name: str) -> None:
        self._scope, self._report = scope, scope.report
        self._state = state
        self._locals, self._outer = local, outer
        self._self = self_name

    def _value(self, node: ast.expr) -> Known | None:
        """Find what is known about the value of an expression."""
        of = self._value
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return TEXT
            case ast.List(elts=elements) | ast.Set(elts=elements):
                return Known("list", next(filter(None, (self._is("result", e) for e in elements)), ""))
            case ast.ListComp(elt=element) | ast.SetComp(elt=element):
                return Known("list", self._is("result", element))
            case ast.Dict() | ast.DictComp():
                return Known("dict")
            case ast.Name(id=name):
                return self._state.get(name)
            case ast.NamedExpr(value=inner):
                return of(inner)
            case ast.Attribute(value=ast.Name()) | ast.Subscript(ast.Attribute(value=ast.Name()), slice=ast.Constant()):
                return self._scope.places.get(ast.unparse(node))
            case ast.IfExp(body=first, orelse=second) | ast.BoolOp(values=[first, second]):
                value = of(first)
                return value if value and value == of(second) else None
            case ast.Await(value=inner) if (awaited := of(inner)) and awaited.kind == "call":
                return Known("result", awaited.operator)
            case ast.Subscript(value=holder, slice=ast.Constant(value=key)):
                operator = self._is("result", holder)
                return TEXT if operator and self._key_type(operator, key) == "str" else None
            case ast.Call(func=function, args=arguments):
                if built := self._scope.imports.built(function):
                    return Known("operator", built) if built in self._scope.operators else None
                called = of(function)
                if called and called.kind == "operator":
                    return Known("call", called.operator)
                if isinstance(function, ast.Attribute) and function.attr in _TASKS and arguments:
                    task = of(arguments[0])
                    return task if task and task.kind == "call" else None
                return TEXT if isinstance(function, ast.Name) and function.id == "str" else None
        return None

    def _is(self, kind: str, node: ast.expr) -> str:
        """Return the operator of ``node`` if its value is of this kind, else ``""``."""
        value = self._value(node)
        return value.operator if value and value.kind == kind else ""

    def _key_type(self, operator: str, key: object) -> str | None:
        keys = catalog.result_keys(self._scope.operators[operator])
        return keys.get(catalog.published(operator).spellings.get(str(key), str(key)))

    def _keys(self, operator: str) -> str:
        return ", ".join(f"[{key!r}]" for key in self._scope.operators[operator].RESULT)

    def _bind(self, target: ast.expr, value: Known | None) -> None:
        match target:
            case ast.Name(id=name):
                self._state[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner in targets:
                    self._bind(inner, element_of(value))
            case ast.Starred(value=inner):
                self._bind(inner, None)
            case _:  # an attribute or an item: the object may have other keys now
                self.generic_visit(target)
                self._state.forget(names_in(target))

    def visit_Name(self, node: ast.Name) -> None:
        name = node.id
        if not isinstance(node.ctx, ast.Load) or name in self._state:
            return
        if name in self._locals:
            self._report("W301", f"{name} may be unbound here", node)
            self._state[name] = None  # one finding is enough
        elif not (name in self._outer or name in self._scope.module_names or name in _GIVEN):
            self._report("W303", f"{name} is not defined", node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target, self._value(node.value))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        before = self._state.copy()
        self._state.update({a.arg: None for a in ast.walk(node.args) if isinstance(a, ast.arg)})
        self.generic_visit(node)
        self._state = before

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        before = self._state.copy()
        for generator in node.generators:
            self.visit(generator.iter)
            self._bind(generator.target, element_of(self._value(generator.iter)))
            for condition in generator.ifs:
                self.visit(condition)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self._state = before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self.generic_visit(node)
        self._check_discarded(node.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        for part in (node.left, node.right) if isinstance(node.op, ast.Add) else ():
            if operator := self._is("result", part):
                take = self._keys(operator)
                self._report("W211", f"{operator}'s whole result is added to something; take {take}", part)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        self._check_awaited(node.value, node)
        if not isinstance(node.slice, ast.Constant):
            return
        key = node.slice.value
        if self._value(node.value) == TEXT and isinstance(key, str):
            self._report("W207", f"{ast.unparse(node.value)[:80]} is a string and has no key {key!r}", node)
        operator = self._is("result", node.value)
        if operator and self._key_type(operator, key) is None:
            there = ", ".join(self._scope.operators[operator].RESULT)
            self._report("W207", f"{operator}'s result has no key {key!r}; it has {there}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if (operator := self._is("result", node.value)) and not hasattr(dict, node.attr):
            take = self._keys(operator)
            self._report("W207", f"{operator}'s result is a dict without .{node.attr}; take {take}", node)
        elif (operator := self._is("operator", node.value)) and node.attr not in ("name", "llm"):
            self._report("W202", f"{operator} has no .{node.attr}: call the operator itself", node)
        of_self = isinstance(node.value, ast.Name) and node.value.id == self._self
        known = self._scope.attributes
        if of_self and known is not None and node.attr not in known and not node.attr.startswith("__"):
            self._report("W202", f"self.{node.attr} is used but not set in __init__", node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        built, operators = self._scope.imports.built(node.func), self._scope.operators
        if built and built in operators:
            signature = catalog.init_signature(operators[built])
            self._check_arguments(built, signature, node, ("llm", "name", *self._check_executor(built, node)), first=1)
        elif built and not hasattr(standard_operator, built):
            self._report("W201", f"there is no operator {built}; there are {', '.join(operators)}", node)
        elif operator := self._is("operator", node.func):
            self._check_operator_call(operator, node)
        asked = [node.func]
        if isinstance(node.func, ast.Attribute) and node.func.attr != "get_usage_summary":
            asked.append(node.func.value)
        if Known("model") in map(self._value, asked):
            self._report("W209", f"{ast.unparse(node.func)} cannot be called: use an operator", node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item]):
                if operator := self._is("result", item):
                    self._state[name] = Known("list", operator)
            case ast.Call(func=ast.Attribute(value=holder, attr=method)):
                if method in ("setdefault", "update") or self._is("list", holder):
                    self._state.forget(names_in(holder))

    def _check_operator_call(self, operator: str, node: ast.Call) -> None:
        signature = catalog.signature(self._scope.operators[operator])
        options = aflow.OPTIONS - signature.parameters.keys()
        keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in options]
        form = aflow.form(catalog.published(operator).forms, len(node.args), keywords)
        if form is None:
            self._check_arguments(operator, signature, node, options)
        parameters = [*zip(form or signature.parameters, node.args, strict=False)]
        for name, argument in [*parameters, *((k.arg or "", k.value) for k in node.keywords)]:
            self._check_awaited(argument, argument)
            value, parameter = self._value(argument), signature.parameters.get(name)
            kind = catalog.type_word(parameter) if parameter else ""
            if kind.startswith("list") and value and value.kind in ("text", "result", "dict"):
                self._report("W203", f"{operator}: {name} must be a list", argument)
            if kind == "list[str]" and (whole := self._is("list", argument)):
                take = self._keys(whole)
                self._report("W203", f"{operator}: {name} holds {whole}'s whole result; take {take}", argument)

    def _check_arguments(
        self, operator: str, signature: inspect.Signature, node: ast.Call, ignored: Collection[str], first: int = 0
    ) -> None:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return
        keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in ignored]
        try:
            signature.bind(*node.args[first:], **dict.fromkeys(keywords))
        except TypeError as error:
            self._report("W203", f"{catalog.call_line(self._scope.operators[operator])}: {error}", node)

    def _check_executor(self, operator: str, node: ast.Call) -> list[str]:
        """Find the keywords of a constructor that name an executor; reports unknown names, but what is not literal
        cannot be known before the run.
        """
        known, words = self._scope.executors, catalog.executor_words(self._scope.operators[operator])
        named = [k for k in node.keywords if k.arg in words] if known else []
        for value in (k.value for k in named):
            if isinstance(value, ast.Constant) and value.value is not None and value.value not in known:
                self._report("W203", f"{operator}: {catalog.no_executor(value.value, known)}", value)
        return [str(k.arg) for k in named]

    def _check_awaited(self, value: ast.expr, node: ast.expr) -> None:
        if operator := self._is("call", value):
            self._report("W204", f"{operator}'s call is not awaited", node)

    def _check_discarded(self, node: ast.expr) -> None:
        """Report an operator's bare call as a whole statement or inside an f-string."""
        if isinstance(node, ast.Call) and self._is("operator", node.func):
            self._check_awaited(node, node)
