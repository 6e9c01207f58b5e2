"""The ten operators by name, and what is derived from their classes: signatures, result keys, documentation."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from llm_as_judge.operators.answer_generate import AnswerGenerate
from llm_as_judge.operators.custom import Custom
from llm_as_judge.operators.custom_code_generate import CustomCodeGenerate
from llm_as_judge.operators.editing import Format, Review, Revise
from llm_as_judge.operators.ensemble import MdEnsemble, ScEnsemble
from llm_as_judge.operators.programmer import Programmer
from llm_as_judge.operators.test import Test
from llm_as_judge.registry import lookup

_CLASSES: tuple[Any, ...] = (
    Custom, AnswerGenerate, CustomCodeGenerate, ScEnsemble, MdEnsemble,
    Programmer, Test, Format, Review, Revise,
)  # fmt: skip
OPERATORS: Mapping[str, Any] = {cls.NAME: cls for cls in _CLASSES}
#: Keys that every result has besides its operator's own.
COMMON_KEYS: Mapping[str, str] = {"parse_ok": "bool", "error": "str"}


def _operator(name: str) -> Any:
    return lookup("operator", name, OPERATORS)


def signature(name: str) -> inspect.Signature:
    """Parameters of the operator's call, without ``self``."""
    full = inspect.signature(_operator(name).__call__)
    return full.replace(parameters=list(full.parameters.values())[1:])


def init_signature(name: str) -> inspect.Signature:
    """Parameters of ``operator.Name(llm, ...)`` after the LLM."""
    full = inspect.signature(_operator(name).__init__)
    return full.replace(parameters=list(full.parameters.values())[2:])


def result_keys(name: str) -> dict[str, str]:
    """Every key of the operator's result with its type word, ``parse_ok`` and ``error`` included."""
    own = {key: kind.__name__ for key, kind in _operator(name).RESULT.items()}
    return {**own, **COMMON_KEYS}


def call_line(name: str) -> str:
    """The call as a workflow writes it: ``Test(problem, solution, entry_point, test_loop=3)``."""
    parts = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in signature(name).parameters.values()]
    return f"{name}({', '.join(parts)})"


def docs(names: Iterable[str] | None = None) -> str:
    """Layer 1 documentation, one line an operator: call, result keys, summary."""
    lines = []
    for name in names or OPERATORS:
        keys = ", ".join(_operator(name).RESULT)
        lines.append(f"{call_line(name)} -> {keys}: {_operator(name).SUMMARY}")
    return "\n".join(lines)
