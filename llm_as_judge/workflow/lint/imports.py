"""Imports of a workflow: whether they exist, their names, and which names of ``prompt.py`` are used."""

import ast
import importlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.operators.catalog import Operators, own_name, published
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.codes import Report
from llm_as_judge.workflow.lint.variables import bound_names

_DISCOURAGED = (
    "os", "sys", "subprocess", "socket", "shutil", "ctypes", "multiprocessing", "threading", "pathlib",
    "signal", "urllib", "http", "importlib", "builtins", "pickle", "tempfile",
)  # fmt: skip
#: Modules whose names may all be imported at once.
_STARRED = ("typing", "math", "collections", "itertools", "functools", "statistics", "asyncio", "dataclasses")


@dataclass(slots=True)
class Imports:
    """Imported names by what they mean."""

    modules: set[str] = field(default_factory=lambda: {"operator"})  # the operators' module
    imported: dict[str, str] = field(default_factory=dict)  # an operator -> its name in the catalog
    prompts: set[str] = field(default_factory=set)  # the module prompt.py
    starred: set[str] = field(default_factory=set)  # everything imported by a star
    known: Mapping[str, aflow.Role] = field(default_factory=dict)  # AFlow's modules, also those that prompt.py imports

    def built(self, function: ast.expr) -> str | None:
        """Return the name in ``operator.Name`` or an imported ``Name``, whether or not there is such an operator."""
        match function:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.modules:
                return own_name(name)
            case ast.Name(id=name):
                return self.imported.get(name)
        return None

    def places(self, nodes: Iterable[ast.AST]) -> dict[str, tuple[str, ast.stmt]]:
        """Map the source of every place with an operator (``self.ops['answer']``) to its name and the statement."""
        found: dict[str, tuple[str, ast.stmt]] = {}

        def put(place: ast.expr, value: ast.expr, statement: ast.stmt, key: str = "") -> None:
            match place, value:
                case _, ast.Call(func=func) if name := self.built(func):
                    found[ast.unparse(place) + key] = name, statement
                case _, ast.Name(id=other) if other in found:
                    found[ast.unparse(place)] = found[other]
                case _, ast.Dict(keys=keys, values=values):
                    for one, member in zip(keys, values, strict=True):
                        put(place, member, statement, f"[{ast.unparse(one)}]" if one else "")
                case ast.Tuple(elts=places), ast.Tuple(elts=values):
                    for inner, member in zip(places, values, strict=False):
                        put(inner, member, statement)

        for node in nodes:
            if isinstance(node, ast.Assign):
                put(node.targets[0], node.value, node)
            elif isinstance(node, ast.AnnAssign) and node.value:
                put(node.target, node.value, node)
        return found


def read_imports(nodes: Sequence[ast.AST], operators: Operators, prompt: str, report: Report) -> Imports:
    """Read the imports among all nodes of a workflow; report what does not exist, in ``prompt.py`` too."""
    prompts, prompt_error, prompt_modules = _read_prompt(prompt)
    found = Imports(known={**aflow.modules(nodes), **prompt_modules})
    tried, unread = set[ast.AST](), set[ast.AST]()
    for node in nodes:
        if isinstance(node, ast.Try) and node.handlers:
            tried.update(inner for statement in node.body for inner in ast.walk(statement))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            unread.update(inner for statement in node.body for inner in ast.walk(statement))
    for node, alias, module, name in aflow.imports(nodes):
        if node in unread:
            continue
        role, own = aflow.role(module), alias.asname or alias.name
        operator_like = role == "operators" or module.rpartition(".")[2] in ("operator", "operators")
        root, missing = module.partition(".")[0], "W108" if node in tried else "W109"
        if role is None and root not in sys.stdlib_module_names:
            report(missing, f"{module} is not available in the sandbox", node)
        elif role is None and root in _DISCOURAGED:
            report("W108", f"{module} has no place in a workflow", node)
        elif role == "prompt" and prompt_error:
            report("W101", prompt_error, node)
        if not name:
            bound = own if alias.asname or isinstance(node, ast.ImportFrom) else module
            if operator_like:
                found.modules.add(bound)
            elif role == "prompt":
                found.prompts.add(bound)
        elif name == "*":
            if role == "operators":
                found.imported.update({n: own for own in operators for n in (own, *published(own).names)})
                found.starred.update(found.imported)
            elif role == "names":
                found.starred.update(aflow.NAMES)
            elif role == "prompt":
                found.starred.update(prompts or ())
            elif module in _STARRED:
                found.starred.update(dir(importlib.import_module(module)))
        elif operator_like and own_name(name) in operators:
            found.imported[own] = own_name(name)
        elif role == "operators":
            there = ", ".join(operators)
            report("W108" if node in tried else "W201", f"there is no operator {name}; there are {there}", node)
        elif role == "names" and name not in aflow.NAMES:
            report(missing, f"{module} has no {name} in the sandbox", node)
        elif role == "prompt" and prompts is not None and name not in prompts:
            report("W210", f"prompt.py has no {name}", node)
    for use in nodes if prompts is not None else ():
        match use:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in found.prompts and use not in tried:
                if prompts is not None and name not in prompts and not name.startswith("__"):
                    report("W210", f"prompt.py has no {name}", use)
    return found


@lru_cache(64)
def _read_prompt(source: str) -> tuple[Collection[str] | None, str, Mapping[str, aflow.Role]]:
    """Read names that a ``prompt.py`` defines (None: any), why it is not valid Python, and AFlow's modules in it."""
    try:
        tree = quiet_parse(source)
    except SyntaxError as error:
        return None, f"prompt.py, line {error.lineno or 1}: {error.msg}", {}
    names = bound_names(tree.body)
    return (None if names & {"*", "__getattr__"} else names), "", aflow.modules(ast.walk(tree))
