"""Lint: reads a workflow's text, once and before it runs, and finds errors; nothing is executed or repaired.

An *error* (a fatal finding) is a statement that fails whenever it is reached, or a class that cannot be used.
Everything else, such as what may fail on some path, is a warning.

    for finding in lint(source).findings:
        print(finding.code, finding.line, finding.message)

This module checks the module and the class of a workflow; ``function`` checks statements, ``expressions`` names and
calls, ``imports`` imports. ``codes`` lists the findings. ``values`` holds what is known of variables, without checks.
"""

import ast
import inspect
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import get_args

from llm_as_judge.answers.code import LONGEST_PARSED, one_error, quiet_parse
from llm_as_judge.operators.catalog import OPERATORS, Operators
from llm_as_judge.sandbox.guest.aflow import Role, constructor_arguments
from llm_as_judge.types import Finding
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.expressions import Scope
from llm_as_judge.workflow.lint.function import ScopeCheck
from llm_as_judge.workflow.lint.imports import Imports, read_imports
from llm_as_judge.workflow.lint.variables import Def, Known, bound_names
from llm_as_judge.workflow.structure import structure

#: Maximum nesting of functions, classes and comprehensions: compile time grows with its square.
_MOST_NESTED = 50
_SCOPE_WORDS = ("def", "class", "lambda", "for")
_SCOPES = (*get_args(Def), ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_GIVEN = {"operator", "create_llm_instance", "DatasetType"}


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the host reads of a workflow's text. Findings in order of their lines, each place and message once."""

    findings: tuple[Finding, ...]
    shape: str = "invalid"
    digest: str = ""
    modules: Mapping[str, Role] = field(default_factory=dict)  # of AFlow, that it imports


def lint(
    source: str, *, entry_point: str | None = None, operators: Operators = OPERATORS, prompt: str = "",
    executors: Collection[str] = (),
) -> Facts:  # fmt: skip
    """Parse and check a workflow's text; ``entry_point`` adds W107, ``prompt`` is the ``prompt.py`` it may import,
    ``executors`` are those that it may name.
    """
    report = Report()
    try:
        tree = quiet_parse(source, LONGEST_PARSED)
        if sum(map(source.count, _SCOPE_WORDS)) > _MOST_NESTED and _nested_scopes(tree) > _MOST_NESTED:
            raise SyntaxError(f"functions are nested more than {_MOST_NESTED} deep")
        with warnings.catch_warnings(), one_error():
            warnings.simplefilter("ignore")  # Python's own warnings about the policy's text
            compile(source, "<workflow>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Facts((Finding("W101", error.msg, error.lineno or 1, True),))
    try:
        imports = _check(tree, report, entry_point, operators, prompt, executors)
    except RecursionError:
        report("W101", "nested too deeply", tree)
        return Facts(tuple(report.findings))
    return Facts(tuple(report.findings), *structure(tree, imports), imports.known)


def _nested_scopes(tree: ast.Module) -> int:
    todo: list[tuple[ast.AST, int]] = [(tree, 0)]
    deepest = 0
    while todo:
        node, depth = todo.pop()
        depth += isinstance(node, _SCOPES)
        deepest = max(deepest, depth)
        todo += ((child, depth) for child in ast.iter_child_nodes(node))
    return deepest


def _check(
    tree: ast.Module, report: Report, entry_point: str | None, operators: Operators, prompt: str,
    executors: Collection[str],
) -> Imports:  # fmt: skip
    nodes = list(ast.walk(tree))
    imports = read_imports(nodes, {**OPERATORS, **operators}, prompt, report)
    workflow = next((n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Workflow"), None)
    if workflow is None:
        report("W102", "no class Workflow", tree)
        return imports
    statements = list(ast.walk(workflow))
    methods = {n.name: n for n in workflow.body if isinstance(n, Def)}
    if not workflow.bases:
        _check_methods(workflow, methods, report, entry_point)
    init = methods.get("__init__", ast.Pass())
    built = {place: own for place, own in imports.places(ast.walk(init)).items() if own[0] in operators}
    assigned = [node for node in ast.walk(init) if isinstance(node, ast.Assign)]
    models = {ast.unparse(node.targets[0]): Known("model") for node in assigned if _is_model(node.value)}
    attributes = {n.attr for n in statements if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    scope = Scope(
        operators=operators,
        executors=executors,
        imports=imports,
        module_names=_GIVEN | imports.starred | {name for n in nodes if isinstance(n, ast.Global) for name in n.names},
        attributes=None if workflow.bases else attributes | bound_names(workflow.body),
        places=models | {place: Known("operator", name) for place, (name, _) in built.items()},
        annotations=not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body),
        report=report,
    )
    ScopeCheck(scope, tree.body).run()
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    for place, (name, statement) in built.items():
        if place.rpartition(".")[2] not in read and place.count(".") == 1 and "[" not in place:
            report("W205", f"{place} ({name}) is built but never used", statement)
    return imports


def _is_model(value: ast.expr) -> bool:
    match value:
        case ast.Name(id="llm") | ast.Call(func=ast.Name(id="create_llm_instance" | "AsyncLLM")):
            return True
    return False


def _check_methods(cls: ast.ClassDef, methods: dict[str, Def], report: Report, entry_point: str | None) -> None:
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is not None:
        try:
            constructor_arguments(_parameters(init)[1:])
        except TypeError as error:
            report("W106", str(error), init)
    if call is None:
        report("W104", "Workflow has no async __call__(self, problem)", cls)
        return
    if isinstance(call, ast.FunctionDef):
        report("W104", "__call__ must be async", call)
    signature = inspect.Signature(_parameters(call))
    takes_entry_point = _accepts(signature, 2) or _accepts(signature, 1, "entry_point")
    if not (takes_entry_point or _accepts(signature, 1)):
        report("W105", "__call__ must take (self, problem) or, for code, (self, problem, entry_point)", call)
    elif entry_point is not None and not takes_entry_point:
        report("W107", "__call__ of a code problem should take (self, problem, entry_point)", call)


def _accepts(signature: inspect.Signature, positional: int, *keywords: str) -> bool:
    """Tell whether a method can be called with this number of arguments after self."""
    try:
        signature.bind(*[None] * (positional + 1), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def _parameters(function: Def) -> list[inspect.Parameter]:
    """Return parameters as ``inspect.signature`` gives them, with None for every default."""
    given, P = function.args, inspect.Parameter
    required = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    places = [(a, P.POSITIONAL_ONLY) for a in given.posonlyargs] + [(a, P.POSITIONAL_OR_KEYWORD) for a in given.args]
    found = [P(a.arg, kind, default=P.empty if i < required else None) for i, (a, kind) in enumerate(places)]
    found += [P(a.arg, P.VAR_POSITIONAL) for a in filter(None, [given.vararg])]
    for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(P(a.arg, P.KEYWORD_ONLY, default=None if default else P.empty))
    return found + [P(a.arg, P.VAR_KEYWORD) for a in filter(None, [given.kwarg])]
