"""What a workflow imports: what there is, what it is called, and what it uses of its ``prompt.py``."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.operators import published
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.assignment import bound_names
from llm_as_judge.workflow.lint.codes import Report

_DISCOURAGED = frozenset(
    (
        "os", "sys", "subprocess", "socket", "shutil", "ctypes", "multiprocessing", "threading", "pathlib",
        "signal", "urllib", "http", "importlib", "builtins", "pickle", "tempfile",
    )
)  # fmt: skip
#: Modules whose names may all be imported at once.
_STARRED = ("typing", "math", "collections", "itertools", "functools", "statistics", "asyncio", "dataclasses")


@dataclass(slots=True)
class Imports:
    """NameTable as the workflow has them, by what they mean."""

    modules: set[str] = field(default_factory=lambda: {"operator"})  # the operators' module
    imported: dict[str, str] = field(default_factory=dict)  # an operator -> its name in the catalog
    prompts: set[str] = field(default_factory=set)  # the module prompt.py
    starred: set[str] = field(default_factory=set)  # everything imported by a star
    of_prompt: ast.stmt | None = None  # the first import of prompt.py


@dataclass(frozen=True, slots=True)
class PromptModule:
    """A workflow's ``prompt.py``: its names (None: any), and why it is not valid Python."""

    names: frozenset[str] | None = frozenset()
    error: str = ""


def read_prompt(source: str) -> PromptModule:
    try:
        tree = quiet_parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = getattr(error, "msg", None) or str(error) or type(error).__name__
        return PromptModule(None, error=f"prompt.py, line {getattr(error, 'lineno', None) or 1}: {message}")
    names = bound_names(tree.body)
    if any(isinstance(n, ast.alias) and n.name == "*" for n in ast.walk(tree)) or "__getattr__" in names:
        return PromptModule(None)
    return PromptModule(names)


def read_imports(tree: ast.Module, operators: Operators, prompt: PromptModule, report: Report) -> Imports:
    """The imports of a workflow; reports those of what does not exist."""
    found = Imports()
    tried, unread = _in_try(tree), _for_type_checkers(tree)
    for node, alias, module, name in aflow.imports(tree):
        if node in unread:
            continue
        role, own = aflow.role(module), alias.asname or alias.name
        operator_like = role == "operators" or module.rpartition(".")[2] in ("operator", "operators")
        if role == "prompt":
            found.of_prompt = found.of_prompt or node
        if role is None:
            _check_import(module, node, report, tried=node in tried)
        if not name:
            bound = own if alias.asname or isinstance(node, ast.ImportFrom) else module
            if operator_like and "." not in bound:
                found.modules.add(bound)
            elif role == "prompt" and "." not in bound:
                found.prompts.add(bound)
        elif name == "*":
            _import_all(module, role, operators, prompt, found)
        elif operator_like and published.own_name(name) in operators:
            found.imported[own] = published.own_name(name)
        elif role == "operators":
            there = ", ".join(operators)
            report("W108" if node in tried else "W201", f"there is no operator {name}; there are {there}", node)
        elif role == "names" and name not in aflow.NAMES:
            report("W108" if node in tried else "W109", f"{module} has no {name} in the sandbox", node)
        elif role == "prompt" and prompt.names is not None and name not in prompt.names:
            report("W210", f"prompt.py has no {name}", node)
    return found


def _import_all(
    module: str, role: aflow.Role | None, operators: Operators, prompt: PromptModule, found: Imports
) -> None:
    if role == "operators":
        found.imported.update({known: name for name in operators for known in (name, *published.names(name))})
        found.starred.update(found.imported)
    elif role == "names":
        found.starred.update(aflow.NAMES)
    elif role == "prompt":
        found.starred.update(prompt.names or ())
    elif module in _STARRED:
        found.starred.update(dir(importlib.import_module(module)))


def _check_import(module: str, node: ast.stmt, report: Report, *, tried: bool) -> None:
    root = module.partition(".")[0]
    if root not in sys.stdlib_module_names:
        report("W108" if tried else "W109", f"{module} is not available in the sandbox", node)
    elif root in _DISCOURAGED:
        report("W108", f"{module} has no place in a workflow", node)


def check_prompts(tree: ast.Module, imports: Imports, prompt: PromptModule, report: Report) -> None:
    """Checks what is taken from ``prompt.py``, except where an error is caught."""
    if prompt.error and imports.of_prompt:
        report("W101", prompt.error, imports.of_prompt)
    tried = _in_try(tree)
    for node in ast.walk(tree):
        if node in tried:
            continue
        name = _prompt_name(node, imports)
        if name is not None and prompt.names is not None and name not in prompt.names and not name.startswith("__"):
            report("W210", f"prompt.py has no {name}", node)


def _prompt_name(node: ast.AST, imports: Imports) -> str | None:
    """``NAME`` of ``prompt_custom.NAME``."""
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in imports.prompts:
            return name
    return None


def _below(nodes: Iterable[ast.If | ast.Try]) -> set[ast.AST]:
    """Everything in the bodies of these statements."""
    return {inner for node in nodes for statement in node.body for inner in ast.walk(statement)}


def _in_try(tree: ast.Module) -> set[ast.AST]:
    """Everything in a ``try`` that catches something."""
    return _below(node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers)


def _for_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """Everything under ``if TYPE_CHECKING:``."""
    tests = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return _below(n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) in tests)
