"""Replacements for AFlow's modules and the objects in them: the model, its costs, a logger.

The host meters tokens and cost; here they are always zero.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_as_judge.sandbox.guest import aflow


class OperatorError(Exception):
    """The host refused an operator call; its message says why."""


class Costs:
    """Replaces the cost records of AFlow and MetaGPT."""

    total_cost = 0.0
    total_budget = 0.0
    total_prompt_tokens = 0
    total_completion_tokens = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def get_total_cost(self) -> float:
        return self.total_cost

    def get_costs(self) -> Costs:
        return self

    def get_summary(self) -> dict[str, Any]:
        return {
            "total_input_tokens": 0,
            "total_output_tokens": 0,
            "total_tokens": 0,
            "total_cost": 0.0,
            "call_count": 0,
            "history": [],
        }


class LLM:
    """Replaces AFlow's model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cost_manager = self.usage_tracker = Costs()

    def get_usage_summary(self) -> dict[str, Any]:
        return Costs().get_summary()

    async def __call__(self, *args: Any, **kwargs: Any) -> str:
        raise OperatorError("self.llm cannot be called: use an operator")


class Logger:
    """Discards what a graph logs."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def create_llm_instance(config: Any = None) -> LLM:
    return LLM()


#: The objects behind ``aflow.NAMES``.
NAMES: dict[str, Any] = {
    **dict.fromkeys(aflow.NAMES, Any),  # most are only used in annotations
    "create_llm_instance": create_llm_instance,
    "AsyncLLM": LLM,
    "CostManager": Costs,
    "logger": Logger(),
    "DatasetType": str,
}


class GraphImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that creates the modules of ``roles``."""

    def __init__(self, roles: Mapping[str, aflow.Role], operators: Mapping[str, Any], prompt: str) -> None:
        self._roles = roles
        self._operators = operators
        self._prompt = prompt

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._roles:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        match self._roles[module.__name__]:
            case "operators":
                module.__dict__.update(self._operators)
            case "prompt":
                exec(compile(self._prompt, "<prompt.py>", "exec", dont_inherit=True), module.__dict__)
            case "names":
                module.__dict__.update(NAMES)
