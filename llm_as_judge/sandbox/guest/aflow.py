"""What AFlow's published graphs import, told by its path: their operators, the ``prompt.py`` beside them, a few names.

``metagpt.ext.aflow...template.operator``, ``workspace.<X>.workflows.round_3.prompt``, ``scripts.async_llm`` and the
like are nowhere installed: the sandbox makes a module for each that a text names and that is known here. The host lints
by the same table. No other module can be had this way.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

Role = Literal["operators", "prompt", "names", "package"]

#: Options of AFlow's own way of asking, which an operator here does not have: they change nothing.
OPTIONS = frozenset(("mode", "enable_thinking", "benchmark"))
#: Where a graph stands in AFlow, so that its relative imports resolve.
PACKAGE = "workspace.task.workflows.round_1"
MODULE = f"{PACKAGE}.graph"
#: What a path begins with in the repositories that publish graphs, or has in it in copies of their folders.
_ROOTS = ("workspace", "workflows", "scripts", "metagpt", "examples", "evoagentx", "maas", "mas_arena", "optimized")
_FOLDERS = ("aflow", "workflows", "graphs", "optimized", "template")
_OPERATORS = ("operator", "operators")
_PROMPT = "prompt"
#: Modules that the names below are imported from.
_HELPERS = (
    "async_llm", "evaluator", "llm_provider_registry", "cost_manager", "logs", "model_configs", "model_utils",
    "llm_utils", "base_model", "base_llm", "benchmark", "base_evaluator", "models_config", "llm_config", "optimizer",
)  # fmt: skip
#: All that those modules have.
NAMES = (
    "create_llm_instance", "AsyncLLM", "CostManager", "logger", "DatasetType", "QuestionType", "LLMConfig",
    "LLMsConfig", "ModelsConfig", "BaseLLM", "Benchmark", "BaseEvaluator",
)  # fmt: skip


def role(module: str) -> Role | None:
    """What the module of this path is to a graph; None for a path that is not AFlow's."""
    first, *_ = parts = module.split(".")
    last = parts[-1]
    if module == _PROMPT:
        return "prompt"
    if len(parts) < 2 or not (first in _ROOTS or any(part.lower() in _FOLDERS for part in parts[:-1])):
        return None
    if last in _OPERATORS:
        return "operators"
    if last == _PROMPT:
        return "prompt"
    return "names" if last in _HELPERS else None


def form(forms: Iterable[Collection[str]], positional: int, keywords: Collection[str]) -> tuple[str, ...] | None:
    """The one of these lists of parameters that such a call gives exactly; None where there is none."""
    for parameters in map(tuple, forms):
        if positional + len(keywords) == len(parameters) and set(keywords) == set(parameters[positional:]):
            return parameters
    return None


def imports(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str, str]]:
    """Every imported name of a text: statement, alias, the module it names and what is taken of it, which is ``""`` for
    the module itself and ``*`` for all.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                if role(inner) in ("operators", "prompt"):
                    yield node, alias, inner, ""
                else:
                    yield node, alias, module, alias.name


def absolute(node: ast.ImportFrom) -> str:
    """The module of ``from ... import``, a relative one from the graph's own place."""
    if not node.level:
        return node.module or ""
    parents = PACKAGE.split(".")
    above = parents[: max(0, len(parents) - node.level + 1)]
    return ".".join([*above, *([node.module] if node.module else [])])


def modules(tree: ast.AST) -> dict[str, Role]:
    """Every module that the imports of a text may have, with the packages it lies in."""
    found: dict[str, Role] = {}
    for _, _, module, _ in imports(tree):
        kind = role(module)
        if kind is not None:
            found[module] = kind
    for module in list(found):
        while "." in module:
            module = module.rpartition(".")[0]
            found.setdefault(module, role(module) or "package")
    return found
