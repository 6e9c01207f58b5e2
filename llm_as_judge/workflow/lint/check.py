"""Find what is wrong with a workflow's text before it runs; nothing is executed and nothing repaired.

An *error* (a fatal finding) is a statement that fails whenever it is reached, or a class that cannot be used.
Everything else is a warning: what may go wrong on some path is left to the run.

    for finding in lint(source):
        print(finding.code, finding.line, finding.message)
"""

from __future__ import annotations

import ast
import inspect
import operator as standard_operator
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.operators.catalog import OPERATORS, Operators
from llm_as_judge.sandbox.guest.construct import constructor_arguments
from llm_as_judge.types import Finding
from llm_as_judge.workflow.lint.assignment import Function, bound_names
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.expressions import BUILTINS, Scope
from llm_as_judge.workflow.lint.function import FunctionCheck
from llm_as_judge.workflow.lint.imports import check_prompts, read_imports, read_prompt
from llm_as_judge.workflow.lint.inference import NameTable


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
        tree = quiet_parse(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own warnings about the policy's text
            compile(source, "<workflow>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Finding("W101", getattr(error, "msg", None) or str(error) or type(error).__name__, line, True)]
    try:
        _check_module(tree, report, entry_point, operators, prompt)
    except RecursionError:
        report("W101", "nested too deeply", tree)
    return report.findings


def _check_module(tree: ast.Module, report: Report, entry_point: str | None, operators: Operators, prompt: str) -> None:
    prompts = read_prompt(prompt)
    imports = read_imports(tree, {**OPERATORS, **operators}, prompts, report)
    check_prompts(tree, imports, prompts, report)
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
    built = dict(_operators_built(methods.get("__init__"), names))
    scope = Scope(
        names=replace(names, attributes={a: name for a, (name, _) in built.items() if name in operators}),
        module_names=module_names,
        attributes=None if workflow.bases else _attributes_of(workflow),
        models=_models(methods.get("__init__")),
        report=report,
    )
    for name, method in methods.items():
        FunctionCheck(scope, method).run(answers=name == "__call__")
    for node in tree.body:
        if isinstance(node, Function):
            FunctionCheck(scope, node, self_name="").run()
    for name, (operator, node) in built.items():
        if name not in scope.used:
            report("W205", f"self.{name} ({operator}) is built but never used", node)


def _check_methods(
    workflow: ast.ClassDef, methods: Mapping[str, Function], report: Report, entry_point: str | None
) -> None:
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is not None:
        try:
            constructor_arguments(_parameters(init)[1:])
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
        inspect.Signature(_parameters(method)).bind(*[None] * (positional + 1), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def _parameters(function: Function) -> list[inspect.Parameter]:
    """As ``inspect.signature`` would give them, with a default's syntax tree as the default."""
    given, kinds = function.args, inspect.Parameter
    places = [
        *((a, kinds.POSITIONAL_ONLY) for a in given.posonlyargs),
        *((a, kinds.POSITIONAL_OR_KEYWORD) for a in given.args),
    ]
    defaults = [*[kinds.empty] * (len(places) - len(given.defaults)), *given.defaults]
    found = [kinds(a.arg, kind, default=d) for (a, kind), d in zip(places, defaults, strict=True)]
    if given.vararg:
        found.append(kinds(given.vararg.arg, kinds.VAR_POSITIONAL))
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(kinds(argument.arg, kinds.KEYWORD_ONLY, default=default or kinds.empty))
    if given.kwarg:
        found.append(kinds(given.kwarg.arg, kinds.VAR_KEYWORD))
    return found


def _check_definitions(tree: ast.Module, workflow: ast.ClassDef, names: frozenset[str], report: Report) -> None:
    """NameTable that Python looks up while it defines the module and the class: statements, bases and annotations."""
    parts: list[ast.AST | None] = list(workflow.bases)
    for statement in tree.body:
        if isinstance(statement, Function | ast.ClassDef):
            parts += statement.decorator_list
        elif not isinstance(statement, (ast.If, ast.Try)):
            parts.append(statement)
    future = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    if not future and sys.version_info < (3, 14):  # later annotations are not looked up at all
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


def _models(init: Function | None) -> frozenset[str]:
    """Attributes of self that hold the model: made by ``create_llm_instance``, or the parameter ``llm``."""
    found = set()
    for node in ast.walk(init) if init is not None else ():
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(), attr=attribute)],
                value=ast.Call(func=ast.Name(id="create_llm_instance" | "AsyncLLM")) | ast.Name(id="llm"),
            ):
                found.add(attribute)
    return frozenset(found)


def _operators_built(init: Function | None, names: NameTable) -> Iterator[tuple[str, tuple[str, ast.stmt]]]:
    """``self.attribute = operator.Name(...)`` in ``__init__``: attribute -> name and statement."""
    for node in ast.walk(init) if init is not None else ():
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=ast.Call(func=func))
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), value=ast.Call(func=func))
            ):
                name = names.operator_built(func)
                if name is not None and (name in names.operators or not hasattr(standard_operator, name)):
                    yield attribute, (name, node)


def _attributes_of(workflow: ast.ClassDef) -> set[str]:
    """NameTable that ``self.name`` may have: set anywhere in the class, methods, class variables."""
    stored = {n.attr for n in ast.walk(workflow) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    defined = {n.name for n in workflow.body if isinstance(n, Function | ast.ClassDef)}
    return stored | defined | _class_names(workflow)


def _class_names(workflow: ast.ClassDef) -> set[str]:
    return {n.id for n in ast.walk(workflow) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
