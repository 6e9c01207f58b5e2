"""What a workflow imports: what there is, what it is called, and what of the ``prompt.py`` beside it is used."""

from __future__ import annotations

import ast
import importlib
import string
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.operators import published
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.codes import Report

_DISCOURAGED = frozenset(
    (
        "os", "sys", "subprocess", "socket", "shutil", "ctypes", "multiprocessing", "threading", "pathlib",
        "signal", "urllib", "http", "importlib", "builtins", "pickle", "tempfile",
    )
)  # fmt: skip
#: Modules of which all names may be imported at once.
_STARRED = ("typing", "math", "collections", "itertools", "functools", "statistics", "asyncio", "dataclasses")


@dataclass(slots=True)
class Imports:
    """Names as the workflow has them, by what they mean."""

    modules: set[str] = field(default_factory=lambda: {"operator"})  # the module of the operators
    imported: dict[str, str] = field(default_factory=dict)  # an operator -> its own name
    prompts: set[str] = field(default_factory=set)  # the module prompt.py
    starred: set[str] = field(default_factory=set)  # all that came by a star
    of_prompt: ast.stmt | None = None  # the first import of prompt.py


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ``prompt.py`` beside a workflow: its names (None: any), the texts among them, and why it is no Python."""

    names: frozenset[str] | None = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


def read_prompt(source: str) -> Prompt:
    try:
        tree = quiet_parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = getattr(error, "msg", None) or str(error) or type(error).__name__
        return Prompt(None, error=f"prompt.py, line {getattr(error, 'lineno', None) or 1}: {message}")
    names = bound_names(tree)
    if any(isinstance(n, ast.alias) and n.name == "*" for n in ast.walk(tree)) or "__getattr__" in names:
        return Prompt(None)
    texts: dict[str, str] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text)))
            ):
                texts[name] = text
    return Prompt(frozenset(names), texts)


def read_imports(tree: ast.Module, operators: Operators, prompt: Prompt, report: Report) -> Imports:
    """Reports an import of what is not there."""
    found = Imports()
    tried = set(_inside(tree, ast.Try))
    unread = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node, alias, module, name in aflow.imports(tree):
        if node in unread:
            continue
        role, own = aflow.role(module), alias.asname or alias.name
        last = module.rpartition(".")[2]
        if role == "prompt":
            found.of_prompt = found.of_prompt or node
        operator_like = role == "operators" or last in ("operator", "operators")
        if role is None:
            _check_import(module, node, report, tried=node in tried)
        if not name:
            plain = own if alias.asname or isinstance(node, ast.ImportFrom) else ""
            if operator_like and (plain or module in ("operator", "operators")):
                found.modules.add(plain or module)
            elif role == "prompt" and (plain or module == "prompt"):
                found.prompts.add(plain or module)
        elif name == "*":
            _star(module, role, operators, prompt, found)
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


def _star(module: str, role: aflow.Role | None, operators: Operators, prompt: Prompt, found: Imports) -> None:
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


def check_prompts(tree: ast.Module, imports: Imports, prompt: Prompt, report: Report) -> None:
    """What the workflow takes of ``prompt.py`` and what it fills into texts, wherever nothing catches the error."""
    if prompt.error and imports.of_prompt:
        report("W101", prompt.error, imports.of_prompt)
    tried = set(_inside(tree, ast.Try))
    for node in ast.walk(tree):
        if node in tried:
            continue
        name = _of_prompt(node, imports)
        if name is not None and prompt.names is not None and name not in prompt.names and not name.startswith("__"):
            report("W210", f"prompt.py has no {name}", node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            asked = prompt.texts.get(_of_prompt(node.func.value, imports) or "")
            if isinstance(node.func.value, ast.Constant) and isinstance(node.func.value.value, str):
                asked = node.func.value.value
            if asked is not None and (wrong := _unfilled(asked, node)):
                report("W303", f"{ast.unparse(node.func)[:80]}: {wrong}", node)


def _of_prompt(node: ast.AST, imports: Imports) -> str | None:
    """``NAME`` of ``prompt_custom.NAME``."""
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in imports.prompts:
            return name
    return None


def _unfilled(text: str, call: ast.Call) -> str:
    """Why ``text.format(...)`` of this call fails, ``""`` where it does not or one cannot tell."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return ""
    given = {k.arg for k in call.keywords}
    try:
        fields = list(_fields(text))
    except ValueError as error:
        return f"the text is no format string: {error}"
    numbered = 0
    for whole in fields:
        first = whole.partition(".")[0].partition("[")[0]
        place = numbered if not first else int(first) if first.isdigit() else None
        numbered += not first
        if place is None and first not in given:
            return f"the text asks for {{{whole}}}, which is not given"
        if place is not None and place >= len(call.args):
            return f"the text asks for {{{whole}}}, and there are {len(call.args)} positional arguments"
    return ""


def _fields(text: str) -> Iterator[str]:
    for _, name, inner, _ in string.Formatter().parse(text):
        if name is not None:
            yield name
            yield from _fields(inner or "")


def _inside(tree: ast.AST, kind: type[ast.Try]) -> Iterator[ast.AST]:
    """Everything in the bodies of ``try`` statements that catch something."""
    for node in ast.walk(tree):
        if isinstance(node, kind) and node.handlers:
            for statement in node.body:
                yield from ast.walk(statement)


def bound_names(tree: ast.Module) -> set[str]:
    """Every name bound outside functions, and those any function declares global."""
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            names.update(n for g in ast.walk(node) if isinstance(g, ast.Global) for n in g.names)
            continue
        if isinstance(node, ast.alias) and node.name != "*":
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        todo.extend(ast.iter_child_nodes(node))
    return names
