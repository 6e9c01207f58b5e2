"""The checks of the expressions of one function: names, operator calls, keys of results."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator as standard_operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from llm_as_judge.operators import catalog, published
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.values import TEXT, Assigned, NameTable, Value, element_of, names_in

BUILTINS = frozenset(dir(builtins)) | {"__name__", "__doc__", "__class__"}
#: Methods after which a list or a result still has the same type and keys.
_READING = ("append", "get", "keys", "values", "items", "copy", "index", "count")


@dataclass(slots=True)
class Scope:
    """What the functions of a workflow share. ``attributes`` is None if a base class may set any."""

    names: NameTable
    module_names: frozenset[str]
    attributes: Collection[str] | None
    models: Collection[str]  # attributes of self that hold the model itself
    report: Report
    used: set[str] = field(default_factory=set)  # attributes of self that are read


class ExpressionCheck(ast.NodeVisitor):
    """Checks expressions in ``state``, which it changes where they bind a name.

    ``local`` are the function's own variables, ``outer`` those of the functions around it.
    """

    def __init__(
        self, scope: Scope, names: NameTable, state: Assigned, local: frozenset[str], outer: frozenset[str]
    ) -> None:
        self._scope = scope
        self._report = scope.report
        self._names = names
        self._state = state
        self._locals = local
        self._outer = outer

    def _bind(self, target: ast.expr, value: Value | None) -> None:
        match target:
            case ast.Name(id=name):
                self._state.bound.add(name)
                self._state.values[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner in targets:
                    self._bind(inner, element_of(value))
            case ast.Starred(value=inner):
                self._bind(inner, None)
            case _:
                for part in ast.iter_child_nodes(target):
                    self.visit(part)
                self._state.forget(names_in(target))

    def _value(self, node: ast.expr) -> Value | None:
        return self._names.value(node, self._state.values)

    def _operator(self, node: ast.expr) -> str:
        """Name of the operator that ``node`` is, or ``""``."""
        value = self._value(node)
        return value.operator if value and value.kind == "operator" else ""

    def _keys(self, operator: str) -> str:
        return ", ".join(f"[{key!r}]" for key in self._names.operators[operator].RESULT)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._check_name(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target, self._value(node.value))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        before = self._state.copy()
        self._state.bound |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        self.visit(node.body)
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
            value = self._value(part)
            if value and value.kind == "result":
                keys = self._keys(value.operator)
                self._report("W211", f"{value.operator}'s whole result is added to something; take {keys}", part)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        value = self._value(node.value)
        if value and value.kind == "call":
            self._report("W204", f"{value.operator}'s call is not awaited", node)
        if value is None or not isinstance(node.slice, ast.Constant):
            return
        key = node.slice.value
        if value == TEXT and isinstance(key, str):
            self._report("W207", f"{ast.unparse(node.value)[:80]} is a string and has no key {key!r}", node)
        if value.kind == "result" and self._names.result_type(value.operator, key) is None:
            there = ", ".join(self._names.operators[value.operator].RESULT)
            self._report("W207", f"{value.operator}'s result has no key {key!r}; it has {there}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        value = self._value(node.value)
        if value and value.kind == "result" and not hasattr(dict, node.attr):
            keys = self._keys(value.operator)
            self._report("W207", f"{value.operator}'s result is a dict without .{node.attr}; take {keys}", node)
        elif value and value.kind == "operator" and node.attr not in ("name", "llm"):
            self._report("W202", f"{value.operator} has no .{node.attr}: call the operator itself", node)
        if isinstance(node.value, ast.Name) and node.value.id == self._names.self_name:
            self._scope.used.add(node.attr)
            known = self._scope.attributes
            if known is not None and node.attr not in known and not node.attr.startswith("__"):
                self._report("W202", f"self.{node.attr} is used but not set in __init__", node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        built = self._names.operator_built(node.func)
        if built is not None and built in self._names.operators:
            signature = catalog.init_signature(self._names.operators[built])
            self._check_arguments(built, signature, node.args[1:], node, ignored=("llm", "name"))
        elif built is not None and not hasattr(standard_operator, built):
            self._report("W201", f"there is no operator {built}; there are {', '.join(self._names.operators)}", node)
        elif operator := self._operator(node.func):
            self._check_operator_call(operator, node)
        match node.func:
            case (
                ast.Attribute(value=ast.Name(id=self._names.self_name), attr=model)
                | ast.Attribute(value=ast.Attribute(value=ast.Name(id=self._names.self_name), attr=model))
            ) if model in self._scope.models:
                if getattr(node.func, "attr", "") != "get_usage_summary":
                    self._report("W209", f"{ast.unparse(node.func)} cannot be called: use an operator", node)
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method not in _READING:
                self._state.forget([name])  # it may hold something else now

    def _check_name(self, node: ast.Name) -> None:
        name = node.id
        if name in self._state.bound:
            return
        if name in self._locals:
            self._report("W301", f"{name} may be unbound here", node)
            self._state.bound.add(name)  # one finding is enough
        elif name not in self._outer and name not in self._scope.module_names and name not in BUILTINS:
            self._report("W303", f"{name} is not defined", node)

    def _check_operator_call(self, operator: str, node: ast.Call) -> None:
        signature = catalog.signature(self._names.operators[operator])
        options = aflow.OPTIONS - signature.parameters.keys()
        keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in options]
        form = aflow.form(published.forms(operator), len(node.args), keywords)
        if form is None:
            self._check_arguments(operator, signature, node.args, node, ignored=options)
        parameters = [*zip(form or signature.parameters, node.args, strict=False)]
        for name, argument in [*parameters, *((k.arg or "", k.value) for k in node.keywords)]:
            value, parameter = self._value(argument), signature.parameters.get(name)
            if value and value.kind == "call":
                self._report("W204", f"{value.operator}'s call is not awaited", argument)
                continue
            takes_list = parameter is not None and catalog.type_word(parameter).startswith("list")
            if takes_list and value and value.kind in ("text", "result", "dict"):
                self._report("W203", f"{operator}: {name} must be a list", argument)

    def _check_arguments(
        self,
        operator: str,
        signature: inspect.Signature,
        positional: Iterable[ast.expr],
        node: ast.Call,
        ignored: Collection[str],
    ) -> None:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return
        keywords = [k.arg for k in node.keywords if k.arg is not None and k.arg not in ignored]
        try:
            signature.bind(*positional, **dict.fromkeys(keywords))
        except TypeError as error:
            self._report("W203", f"{catalog.call_line(self._names.operators[operator])}: {error}", node)

    def _check_discarded(self, node: ast.expr) -> None:
        """Reports an operator's bare call as a whole statement or inside an f-string."""
        if isinstance(node, ast.Call) and (operator := self._operator(node.func)):
            self._report("W204", f"{operator}'s call is not awaited", node)
