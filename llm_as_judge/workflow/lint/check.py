"""Find what is wrong with a workflow's text before it runs; nothing is executed and nothing repaired.

Works on the syntax tree. A *fatal* finding means that the workflow cannot run to an answer, or fails on an
ordinary path; the others are worth saying. A correct workflow raises no fatal finding: where lint cannot
tell, it is silent.

    for finding in lint(source):
        print(finding.code, finding.line, finding.message)
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator as standard_operator
import sys
import warnings
from collections.abc import Mapping

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.operators.catalog import OPERATORS, Operators
from llm_as_judge.sandbox.guest.construct import constructor_arguments
from llm_as_judge.types import Finding
from llm_as_judge.workflow.lint.calls import BUILTINS, Function, FunctionLint, Scope
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.imports import bound_names, check_prompts, read_imports, read_prompt
from llm_as_judge.workflow.lint.kinds import Knowledge, operator_built


def lint(
    source: str, *, entry_point: str | None = None, operators: Operators = OPERATORS, prompt: str = ""
) -> list[Finding]:
    """Findings in order of their lines, each place and message once.

    Args:
        entry_point: of a code problem; adds W107.
        operators: those a workflow may use.
        prompt: text of the ``prompt.py`` that it may import.
    """
    try:
        tree = quiet_parse(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python finds odd in the policy's text is no news on a terminal
            compile(source, "<workflow>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Finding("W101", getattr(error, "msg", None) or str(error) or type(error).__name__, line, True)]
    report = Report()
    try:
        _lint_module(tree, report, entry_point, operators, prompt)
    except RecursionError:
        report("W101", "nested too deeply", tree)
    return sorted(report.findings, key=lambda finding: (finding.line, finding.code))


def _lint_module(tree: ast.Module, report: Report, entry_point: str | None, operators: Operators, prompt: str) -> None:
    known = {**OPERATORS, **operators}
    prompts = read_prompt(prompt)
    imports = read_imports(tree, known, prompts, report)
    check_prompts(tree, imports, prompts, report)
    workflow = next((n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Workflow"), None)
    if workflow is None:
        report("W102", "no class Workflow", tree)
        return
    methods = {n.name: n for n in workflow.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    names = frozenset({"operator", "create_llm_instance", "DatasetType"} | bound_names(tree) | imports.starred)
    for base in workflow.bases:
        if isinstance(base, ast.Name) and base.id not in names and not hasattr(builtins, base.id):
            report("W303", f"{base.id} is not defined", base)
    if not workflow.bases:
        _check_methods(workflow, methods, report, entry_point)
    knowledge = Knowledge(operators=known, modules=frozenset(imports.modules), imported=imports.imported)
    built = _operators_built(methods.get("__init__"), knowledge, operators, report)
    knowledge.attributes = {name: operator for name, (operator, _) in built.items() if operator in operators}
    knowledge.models = _models(methods.get("__init__"))
    scope = Scope(
        knowledge=knowledge,
        module_names=names,
        attributes=None if workflow.bases else attributes_of(workflow) | set(built),
        operators=operators,
        report=report,
    )
    for name, method in methods.items():
        FunctionLint(scope, method, answers=name == "__call__").run()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            FunctionLint(scope, node, self_name="").run()
    _check_outside(tree, names, report)
    _check_annotations(tree, workflow, names, report)
    for name, (operator, node) in built.items():
        if name not in scope.used:
            report("W205", f"self.{name} ({operator}) is built but never used", node)


def _check_methods(
    workflow: ast.ClassDef,
    methods: Mapping[str, Function],
    report: Report,
    entry_point: str | None,
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
    if not (_accepts(call, 1) or _accepts(call, 2)):
        report("W105", "__call__ must take (self, problem) or, for code, (self, problem, entry_point)", call)
    elif entry_point is not None and not _accepts(call, 2) and call.args.kwarg is None:
        report("W107", "__call__ of a code problem should take (self, problem, entry_point)", call)


def _check_outside(tree: ast.Module, names: frozenset[str], report: Report) -> None:
    """Names of statements outside functions and classes, and of what stands before those."""
    parts: list[ast.AST] = []
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            parts += statement.decorator_list
        elif not isinstance(statement, (ast.If, ast.Try)):
            parts.append(statement)
    nodes = [node for part in parts for node in ast.walk(part)]
    known = names | BUILTINS | {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
            report("W303", f"{node.id} is not defined", node)


def _check_annotations(tree: ast.Module, workflow: ast.ClassDef, names: frozenset[str], report: Report) -> None:
    """Names in annotations, which Python looks up when it defines the class, up to version 3.13."""
    later = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    if later or sys.version_info >= (3, 14):
        return
    known = names | {n.id for s in workflow.body for n in ast.walk(s) if isinstance(n, ast.Name) and _stored(n)}
    annotations: list[ast.expr | None] = []
    for node in (*tree.body, *workflow.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            annotations += [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
        elif isinstance(node, ast.AnnAssign):
            annotations.append(node.annotation)
    for part in (p for annotation in annotations if annotation is not None for p in ast.walk(annotation)):
        if isinstance(part, ast.Name) and part.id not in known and not hasattr(builtins, part.id):
            report("W303", f"{part.id} is not defined", part)


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _parameters(function: Function) -> list[inspect.Parameter]:
    """As ``inspect.signature`` would tell them; a default is told by not being empty."""
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


def _accepts(function: Function, count: int) -> bool:
    """Whether so many positional arguments after self can be given."""
    arguments = function.args
    named = len(arguments.posonlyargs) + len(arguments.args) - 1
    required = named - len(arguments.defaults)
    keyword_only = [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    if keyword_only == ["entry_point"] and count == 2:  # given by keyword
        count = 1
    elif keyword_only:
        return False
    return required <= count and (count <= named or arguments.vararg is not None)


def _models(init: Function | None) -> frozenset[str]:
    """Attributes of self that hold the model itself: made by ``create_llm_instance``, or the parameter ``llm``."""
    found = set()
    for node in ast.walk(init) if init is not None else ():
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(), attr=attribute)],
                value=ast.Call(func=ast.Name(id="create_llm_instance" | "AsyncLLM")) | ast.Name(id="llm"),
            ):
                found.add(attribute)
    return frozenset(found)


def _operators_built(
    init: Function | None,
    knowledge: Knowledge,
    operators: Operators,
    report: Report,
) -> dict[str, tuple[str, ast.stmt]]:
    """``self.attribute = operator.Name(...)`` of ``__init__``: attribute -> name and statement."""
    built: dict[str, tuple[str, ast.stmt]] = {}
    for node in ast.walk(init) if init is not None else ():
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=ast.Call(func=func))
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), value=ast.Call(func=func))
            ):
                name = operator_built(func, knowledge)
                if name is not None and (name in operators or not hasattr(standard_operator, name)):
                    built[attribute] = (name, node)
    return built


def attributes_of(workflow: ast.ClassDef) -> set[str]:
    """Names that ``self.name`` may have: set anywhere in the class, methods, class variables."""
    names = {n.attr for n in ast.walk(workflow) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in workflow.body:
        names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names
