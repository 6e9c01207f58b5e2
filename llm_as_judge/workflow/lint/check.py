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
import warnings

from llm_as_judge.answers.code import LONGEST_PARSED, one_error, quiet_parse
from llm_as_judge.operators.catalog import OPERATORS, Operators
from llm_as_judge.sandbox.guest.aflow import constructor_arguments
from llm_as_judge.types import Finding
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.expressions import Scope
from llm_as_judge.workflow.lint.function import ScopeCheck
from llm_as_judge.workflow.lint.imports import Imports, read_imports
from llm_as_judge.workflow.lint.values import Function, Value, bound_names, operator_built

_GIVEN = {"operator", "create_llm_instance", "DatasetType"}


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
    nodes, statements = list(ast.walk(tree)), list(ast.walk(workflow))
    methods = {n.name: n for n in workflow.body if isinstance(n, Function)}
    if not workflow.bases:
        _check_methods(workflow, methods, report, entry_point)
    values = _set_in_init(methods.get("__init__"), imports, operators)
    attributes = {n.attr for n in statements if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    scope = Scope(
        operators=operators,
        imports=imports,
        module_names=_GIVEN | imports.starred | {name for n in nodes if isinstance(n, ast.Global) for name in n.names},
        attributes=None if workflow.bases else attributes | bound_names(workflow.body),
        values={name: value for name, (value, _) in values.items()},
        annotations=not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body),
        report=report,
    )
    ScopeCheck(scope, tree.body).run()
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    for name, (value, statement) in values.items():
        if value.kind == "operator" and name not in read:
            report("W205", f"self.{name} ({value.operator}) is built but never used", statement)


def _check_methods(
    workflow: ast.ClassDef, methods: dict[str, Function], report: Report, entry_point: str | None
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
    arguments, none = copy.deepcopy(function.args), ast.Constant(None)
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    arguments.defaults = [none for _ in arguments.defaults]
    arguments.kw_defaults = [default and none for default in arguments.kw_defaults]
    bare = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, none)))
    return inspect.signature(eval(compile(bare, "<signature>", "eval")))  # holds nothing but names


def _set_in_init(init: Function | None, imports: Imports, operators: Operators) -> dict[str, tuple[Value, ast.stmt]]:
    """Operators and models that ``__init__`` keeps, by attribute, with the statement."""
    found: dict[str, tuple[Value, ast.stmt]] = {}
    for node in ast.walk(init) if init is not None else ():
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=value)
                | ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), value=ast.expr() as value)
            ):
                match value:
                    case ast.Call(func=ast.Name(id="create_llm_instance" | "AsyncLLM")) | ast.Name(id="llm"):
                        found[attribute] = Value("model"), node
                    case ast.Call(func=function):
                        built = operator_built(function, imports.modules, imports.imported)
                        if built in operators:
                            found[attribute] = Value("operator", str(built)), node
    return found
