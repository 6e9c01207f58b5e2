"""Replacements for AFlow's modules and the objects in them: the model, its costs, a logger.

The host meters tokens and cost; here they are always zero.
"""

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from llm_as_judge.sandbox.guest import aflow


class OperatorError(Exception):
    """The host refused an operator call; its message says why."""


class Costs:
    """Replaces the cost records of AFlow and MetaGPT."""

    total_cost = total_budget = 0.0
    total_prompt_tokens = total_completion_tokens = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def get_total_cost(self) -> float:
        return self.total_cost

    def get_costs(self) -> "Costs":
        return self

    def get_summary(self) -> dict[str, Any]:
        counts = dict.fromkeys(("total_input_tokens", "total_output_tokens", "total_tokens", "call_count"), 0)
        return {**counts, "total_cost": 0.0, "history": []}


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


def create_modules(roles: Mapping[str, aflow.Role], operators: Mapping[str, Any], prompt: str) -> None:
    """Make the modules of ``roles`` importable, with the packages around them; ``prompt`` is executed last."""
    contents = {"operators": operators, "names": NAMES}
    for name in sorted(roles):
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update({"__path__": [], **contents.get(roles[name], {})})
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)
    for name in roles:
        if roles[name] == "prompt":
            exec(compile(prompt, "<prompt.py>", "exec", dont_inherit=True), sys.modules[name].__dict__)
