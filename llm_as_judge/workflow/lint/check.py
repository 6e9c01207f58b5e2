"""Find what is wrong with a workflow's text before it runs; nothing is executed and nothing repaired.

An *error* (a fatal finding) is a statement that fails whenever it is reached, or a class that cannot be used.
Everything else is a warning: what may go wrong on some path is left to the run.

    for finding in lint(source):
        print(finding.code, finding.line, finding.message)
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator as standard_operator
import warnings
from collections.abc import Mapping

from llm_as_judge.answers.code import LONGEST_PARSED, one_error, quiet_parse
from llm_as_judge.operators.catalog import OPERATORS, Operators
from llm_as_judge.sandbox.guest.aflow import constructor_arguments
from llm_as_judge.types import Finding
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.expressions import BUILTINS, Scope
from llm_as_judge.workflow.lint.function import FunctionCheck
from llm_as_judge.workflow.lint.imports import read_imports
from llm_as_judge.workflow.lint.values import Function, NameTable, bound_names


def lint(
    source: str, *, entry_point: str | None = None, operators: Operators = OPERATORS, prompt: str = ""
) -> list[Finding]:
    """Findings in order of their lines, each place and message once.

    Args:
        entry_point: of a code problem; adds W107.
        operators: those a workflow may use.
        prompt: text of the ``prompt.py`` that it may import.
    """
    report = Report()
    try:
        tree = quiet_parse(source, LONGEST_PARSED)
        with warnings.catch_warnings(), one_error():
            warnings.simplefilter("ignore")  # Python's own warnings about the policy's text
            compile(source, "<workflow>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return [Finding("W101", error.msg, error.lineno or 1, True)]
    try:
        _check_module(tree, report, entry_point, operators, prompt)
    except RecursionError:
        report("W101", "nested too deeply", tree)
    return report.findings


def _check_module(tree: ast.Module, report: Report, entry_point: str | None, operators: Operators, prompt: str) -> None:
    imports = read_imports(tree, {**OPERATORS, **operators}, prompt, report)
    workflow = next((n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Workflow"), None)
    if workflow is None:
        report("W102", "no class Workflow", tree)
        return
    declared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    given = {"operator", "create_llm_instance", "DatasetType"}
    module_names = bound_names(tree.body) | given | declared | imports.starred
    methods = {n.name: n for n in workflow.body if isinstance(n, Function)}
    if not workflow.bases:
        _check_methods(workflow, methods, report, entry_point)
    _check_definitions(tree, workflow, module_names, report)
    names = NameTable(operators, {}, frozenset(imports.modules), imports.imported)
    built, models = _set_in_init(methods.get("__init__"), names)
    attributes = {attribute: name for attribute, (name, _) in built.items() if name in operators}
    scope = Scope(
        names=NameTable(operators, attributes, names.modules, names.imported),
        module_names=module_names,
        attributes=None if workflow.bases else _attributes_of(workflow),
        models=models,
        report=report,
    )
    for name, method in methods.items():
        FunctionCheck(scope, method).run(answers=name == "__call__")
    for node in tree.body:
        if isinstance(node, Function):
            FunctionCheck(scope, node, self_name="").run()
    for name, (operator, statement) in built.items():
        if name not in scope.used:
            report("W205", f"self.{name} ({operator}) is built but never used", statement)


def _check_methods(
    workflow: ast.ClassDef, methods: Mapping[str, Function], report: Report, entry_point: str | None
) -> None:
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is not None:
        try:
            constructor_arguments(list(_signature(init).parameters.values())[1:])
        except TypeError as error:
            report("W106", str(error), init)
    if call is None:
        report("W104", "Workflow has no async __call__(self, problem)", workflow)
        return
    if isinstance(call, ast.FunctionDef):
        report("W104", "__call__ must be async", call)
    takes_entry_point = _accepts(call, 2) or _accepts(call, 1, "entry_point")
    if not (takes_entry_point or _accepts(call, 1)):
        report("W105", "__call__ must take (self, problem) or, for code, (self, problem, entry_point)", call)
    elif entry_point is not None and not takes_entry_point:
        report("W107", "__call__ of a code problem should take (self, problem, entry_point)", call)


def _accepts(method: Function, positional: int, *keywords: str) -> bool:
    """Whether a method can be called with so many arguments after self."""
    try:
        _signature(method).bind(*[None] * (positional + 1), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def _signature(function: Function) -> inspect.Signature:
    """Parameters as ``inspect.signature`` gives them, with None for every default."""
    arguments = copy.deepcopy(function.args)
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    none = ast.Constant(None)
    arguments.defaults = [none for _ in arguments.defaults]
    arguments.kw_defaults = [default and none for default in arguments.kw_defaults]
    bare = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, none)))
    return inspect.signature(eval(compile(bare, "<signature>", "eval")))  # holds nothing but names


def _check_definitions(tree: ast.Module, workflow: ast.ClassDef, names: frozenset[str], report: Report) -> None:
    """Names that Python looks up while it defines the module and the class: statements, bases and annotations."""
    parts: list[ast.AST | None] = list(workflow.bases)
    for statement in tree.body:
        if isinstance(statement, Function | ast.ClassDef):
            parts += statement.decorator_list
        elif not isinstance(statement, (ast.If, ast.Try)):
            parts.append(statement)
    if not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body):
        for node in (*tree.body, *workflow.body):
            if isinstance(node, Function):
                parts += [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
            elif isinstance(node, ast.AnnAssign):
                parts.append(node.annotation)
    nodes = [node for part in parts if part is not None for node in ast.walk(part)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    known = names | BUILTINS | stored | arguments | _class_names(workflow)
    for name in nodes:
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id not in known:
            report("W303", f"{name.id} is not defined", name)


def _set_in_init(init: Function | None, names: NameTable) -> tuple[dict[str, tuple[str, ast.stmt]], set[str]]:
    """Attributes that ``__init__`` sets to operators (with name and statement), and those it sets to the model."""
    built: dict[str, tuple[str, ast.stmt]] = {}
    models = set()
    for node in ast.walk(init) if init is not None else ():
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=value)
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), value=ast.expr() as value)
            ):
                name = names.operator_built(value.func) if isinstance(value, ast.Call) else None
                if name is not None and (name in names.operators or not hasattr(standard_operator, name)):
                    built[attribute] = name, node
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(), attr=attribute)],
                value=ast.Call(func=ast.Name(id="create_llm_instance" | "AsyncLLM")) | ast.Name(id="llm"),
            ):
                models.add(attribute)
    return built, models


def _attributes_of(workflow: ast.ClassDef) -> set[str]:
    """Names that ``self.name`` may have: set anywhere in the class, methods, class variables."""
    stored = {n.attr for n in ast.walk(workflow) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    defined = {n.name for n in workflow.body if isinstance(n, Function | ast.ClassDef)}
    return stored | defined | _class_names(workflow)


def _class_names(workflow: ast.ClassDef) -> set[str]:
    return {n.id for n in ast.walk(workflow) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
