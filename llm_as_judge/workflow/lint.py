"""Find what is wrong with a workflow's text before it runs; nothing is executed and nothing repaired.

Works on the syntax tree. A *fatal* finding means that the workflow cannot run to an answer, or fails on an
ordinary path; the others are worth saying. A correct workflow raises no fatal finding: where lint cannot
tell, it is silent.

    for finding in lint(source):
        print(finding.code, finding.line, finding.message)
"""

from __future__ import annotations

import ast
import operator as standard_operator
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from llm_as_judge.operators import catalog
from llm_as_judge.workflow.lint_calls import FunctionLint, Scope
from llm_as_judge.workflow.lint_names import Function, attributes_of, module_names
from llm_as_judge.workflow.lint_values import Knowledge, operator_built

#: code -> what it means, and whether it is fatal
CODES: Mapping[str, tuple[str, bool]] = {
    "W101": ("the text is not Python", True),
    "W102": ("there is no class Workflow", True),
    "W103": ("Workflow has no __init__", True),
    "W104": ("Workflow has no async __call__", True),
    "W105": ("__call__ cannot be called with (problem) or (problem, entry_point)", True),
    "W106": ("__init__ cannot be called with (name, llm_config, dataset)", True),
    "W107": ("a code problem's __call__ does not take entry_point", False),
    "W108": ("an import that is not available or has no place in a workflow", False),
    "W201": ("there is no such operator", True),
    "W202": ("an attribute of self is used but not set in __init__", True),
    "W203": ("an operator is given the wrong arguments", True),
    "W204": ("an operator's call is not awaited", True),
    "W205": ("an operator is built but never used", False),
    "W206": ("an operator's call cannot be reached", False),
    "W207": ("an operator's result has no such key", True),
    "W208": ("get() of a key that an operator's result never has", False),
    "W301": ("a variable may be unbound", True),
    "W302": ("a variable is unbound if a loop does not run", False),
    "W303": ("a name is not defined", True),
    "W304": ("a path of __call__ ends without a return", True),
    "W305": ("__call__ ends without a return if a loop comes to its end", False),
    "W401": ("the answer is not a string", True),
}

_DISCOURAGED = frozenset(
    (
        "os", "sys", "subprocess", "socket", "shutil", "ctypes", "multiprocessing", "threading", "pathlib",
        "signal", "requests", "urllib", "http", "importlib", "builtins", "pickle", "tempfile",
    )
)  # fmt: skip
_AFLOW_ROOTS = ("workspace", "workflows", "scripts")
_OPERATOR_MODULES = ("operator", "operators")


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    message: str
    line: int
    fatal: bool


def is_valid(findings: Iterable[Finding]) -> bool:
    """No finding is fatal."""
    return not any(finding.fatal for finding in findings)


def lint(source: str, *, entry_point: str | None = None, operators: Collection[str] | None = None) -> list[Finding]:
    """Findings in order of their lines, each place and message once.

    Args:
        entry_point: of a code problem; adds W107.
        operators: names allowed; None allows all of the catalog.
    """
    try:
        tree = ast.parse(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python finds odd in the policy's text is no news on a terminal
            compile(source, "<workflow>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Finding("W101", getattr(error, "msg", None) or str(error) or type(error).__name__, line, True)]
    report = _Report()
    try:
        _lint_module(tree, report, entry_point, catalog.OPERATORS if operators is None else operators)
    except RecursionError:
        report("W101", "nested too deeply", tree)
    return sorted(report.findings, key=lambda finding: (finding.line, finding.code))


class _Report:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._seen: set[tuple[str, str, int]] = set()

    def __call__(self, code: str, message: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", 1)
        if (code, message, line) not in self._seen:
            self._seen.add((code, message, line))
            self.findings.append(Finding(code, message, line, CODES[code][1]))


def _lint_module(tree: ast.Module, report: _Report, entry_point: str | None, operators: Collection[str]) -> None:
    modules, imported = _imports(tree, report)
    workflow = next((n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Workflow"), None)
    if workflow is None:
        report("W102", "no class Workflow", tree)
        return
    methods = {n.name: n for n in workflow.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if not workflow.bases:
        _check_methods(workflow, methods, report, entry_point)
    knowledge = Knowledge(modules=modules, imported=imported)
    built = _operators_built(methods.get("__init__"), knowledge, operators, report)
    knowledge.attributes = {name: operator for name, (operator, _) in built.items() if operator in operators}
    scope = Scope(
        knowledge=knowledge,
        module_names=module_names(tree),
        attributes=None if workflow.bases else attributes_of(workflow) | set(built),
        operators=operators,
        report=report,
    )
    for name, method in methods.items():
        FunctionLint(scope, method, answers=name == "__call__").run()
    for name, (operator, node) in built.items():
        if name not in scope.used:
            report("W205", f"self.{name} ({operator}) is built but never used", node)


def _check_methods(
    workflow: ast.ClassDef,
    methods: Mapping[str, Function],
    report: _Report,
    entry_point: str | None,
) -> None:
    init, call = methods.get("__init__"), methods.get("__call__")
    if init is None:
        report("W103", "Workflow has no __init__(self, name, llm_config, dataset)", workflow)
    elif not _accepts(init, 3):
        report("W106", "__init__ must take (self, name, llm_config, dataset)", init)
    if call is None:
        report("W104", "Workflow has no async __call__(self, problem)", workflow)
        return
    if isinstance(call, ast.FunctionDef):
        report("W104", "__call__ must be async", call)
    if not (_accepts(call, 1) or _accepts(call, 2)):
        report("W105", "__call__ must take (self, problem) or, for code, (self, problem, entry_point)", call)
    elif entry_point is not None and not _accepts(call, 2):
        report("W107", "__call__ of a code problem should take (self, problem, entry_point)", call)


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


def _imports(tree: ast.Module, report: _Report) -> tuple[frozenset[str], dict[str, str]]:
    """Names that mean the operator module, and operators imported by name."""
    modules: set[str] = {"operator"}
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _check_import(alias.name, node, report)
                if alias.name.rpartition(".")[2] in _OPERATOR_MODULES and alias.asname:
                    modules.add(alias.asname)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:
                _check_import(node.module or "", node, report)
            from_operators = (node.module or "").rpartition(".")[2] in _OPERATOR_MODULES
            for alias in node.names:
                if alias.name in _OPERATOR_MODULES:
                    modules.add(alias.asname or alias.name)
                elif from_operators and alias.name in catalog.OPERATORS:
                    imported[alias.asname or alias.name] = alias.name
    return frozenset(modules), imported


def _check_import(module: str, node: ast.stmt, report: _Report) -> None:
    root = module.partition(".")[0]
    if root in _DISCOURAGED:
        report("W108", f"{module} has no place in a workflow", node)
    elif root not in sys.stdlib_module_names and root not in _AFLOW_ROOTS:
        report("W108", f"{module} is not available in the sandbox", node)


def _operators_built(
    init: Function | None,
    knowledge: Knowledge,
    operators: Collection[str],
    report: _Report,
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
