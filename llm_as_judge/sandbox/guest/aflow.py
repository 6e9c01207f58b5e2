"""Modules that AFlow's published graphs import, recognised by path: operators, a graph's ``prompt.py``, some names.

``metagpt.ext.aflow...template.operator``, ``workspace.<X>.workflows.round_3.prompt``, ``scripts.async_llm`` and so on
are not installed: the sandbox creates those that a text names and that are known here, and lint uses the same table.
The same holds for the arguments of a workflow's constructor, of which AFlow's are one form.
"""

import ast
import inspect
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

Role = Literal["operators", "prompt", "names", "package"]
Argument = Literal["name", "llm_config", "dataset", "llm"]
#: The arguments of AFlow's constructor; three required parameters with any names are treated as these.
_CONSTRUCTOR: tuple[Argument, ...] = ("name", "llm_config", "dataset")

#: Options of AFlow's operators that do not exist here and are ignored.
OPTIONS = frozenset(("mode", "enable_thinking", "benchmark"))
#: Package of a graph in AFlow, which its relative imports refer to.
PACKAGE = "workspace.task.workflows.round_1"
MODULE = f"{PACKAGE}.graph"
#: First parts of the paths in repositories that publish graphs, and folder names in copies of them.
_ROOTS = ("workspace", "workflows", "scripts", "metagpt", "examples", "evoagentx", "maas", "mas_arena", "optimized")
_FOLDERS = ("aflow", "workflows", "graphs", "optimized", "template")
_MOST_PARTS = 20  # of a path: each becomes a module
#: Modules that the names below are imported from.
_HELPERS = (
    "async_llm", "evaluator", "llm_provider_registry", "cost_manager", "logs", "model_configs", "model_utils",
    "llm_utils", "base_model", "base_llm", "benchmark", "base_evaluator", "models_config", "llm_config", "optimizer",
)  # fmt: skip
#: Roles by the last part of a path.
_ROLES: dict[str, Role] = {name: "names" for name in _HELPERS}
_ROLES |= {"operator": "operators", "operators": "operators", "prompt": "prompt"}
#: All names in those modules.
NAMES = (
    "create_llm_instance", "AsyncLLM", "CostManager", "logger", "DatasetType", "QuestionType", "LLMConfig",
    "LLMsConfig", "ModelsConfig", "BaseLLM", "Benchmark", "BaseEvaluator",
)  # fmt: skip


def role(module: str) -> Role | None:
    """Return the role of a module for a graph; None for a path that is not AFlow's."""
    first, *_ = parts = module.split(".", _MOST_PARTS)
    if len(parts) > _MOST_PARTS:
        return None
    known = first in _ROOTS or any(part.lower() in _FOLDERS for part in parts[:-1])
    return _ROLES.get(parts[-1]) if module == "prompt" or (known and len(parts) > 1) else None


def form(forms: Iterable[Collection[str]], positional: int, keywords: Collection[str]) -> tuple[str, ...] | None:
    """Return the list of parameters that a call gives exactly; None if there is no such list."""
    for parameters in map(tuple, forms):
        if positional + len(keywords) == len(parameters) and set(keywords) == set(parameters[positional:]):
            return parameters
    return None


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str, str]]:
    """Yield statement, alias, module and name of each import; name ``""`` is the module, ``*`` all in it."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                whole = role(inner) in ("operators", "prompt")
                yield (node, alias, inner, "") if whole else (node, alias, module, alias.name)


def absolute(node: ast.ImportFrom) -> str:
    """Resolve the module of ``from ... import``; relative ones start at the graph's package."""
    if not node.level:
        return node.module or ""
    parents = PACKAGE.split(".")
    return ".".join(filter(None, [*parents[: max(0, len(parents) - node.level + 1)], node.module]))


def modules(nodes: Iterable[ast.AST]) -> dict[str, Role]:
    """Find every known module that is imported among the nodes of a text, with the packages that contain it."""
    found: dict[str, Role] = {module: kind for _, _, module, _ in imports(nodes) if (kind := role(module))}
    for module in list(found):
        while "." in module:
            module = module.rpartition(".")[0]
            found.setdefault(module, role(module) or "package")
    return found


def constructor_arguments(parameters: Iterable[inspect.Parameter]) -> tuple[list[Argument], dict[str, Argument]]:
    """List positional and keyword arguments for a constructor with these parameters (without ``self``).

    Known names get their value, others keep their default, ``*args`` and ``**kwargs`` get the rest of AFlow's three.
    Raises ``TypeError`` for an unknown parameter without a default.
    """
    parameters = list(parameters)
    kinds = {p.kind for p in parameters}
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    places = [p for p in named if p.kind is not p.KEYWORD_ONLY]
    required = [p.name for p in places if p.default is p.empty]
    by_place = dict(zip(required, _CONSTRUCTOR, strict=True)) if len(required) == len(_CONSTRUCTOR) else {}
    given: dict[str, Argument] = {}
    for p in named:
        kind = _known(p.name) or by_place.get(p.name)
        if kind is not None:
            given[p.name] = kind
        elif p.default is p.empty:
            raise TypeError(f"Workflow.__init__ asks for {p.name!r}; there are name, llm_config, dataset and llm")
    args = [given.pop(p.name) for p in itertools.takewhile(lambda p: p.name in given, places)]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        args += _CONSTRUCTOR[len(args) :]
    elif inspect.Parameter.VAR_KEYWORD in kinds:
        given |= {kind: kind for kind in _CONSTRUCTOR if kind not in (*args, *given.values())}
    return args, given


def _known(parameter: str) -> Argument | None:
    name = parameter.strip("_").lower()
    if "config" in name:
        return "llm_config"
    if name in ("llm", "model", "client") or name.startswith("llm_") or name.endswith("_llm"):
        return "llm"
    if name == "dataset":
        return "dataset"
    return "name" if name in ("name", "workflow_name") else None
