"""Forms of calls and results that only AFlow's published graphs use, by dataset, version and descendant.

Lint, the sandbox and the runner accept them; the policy's prompt does not mention them.
"""

from collections.abc import Mapping
from typing import Any

from llm_as_judge.types import Question

_NAMES: Mapping[str, str] = {"QAScEnsemble": "ScEnsemble"}
_FORMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ScEnsemble": (("solutions",),),
    "MdEnsemble": (("solutions",),),
    "Format": (("solution",),),
    "CustomCodeGenerate": (("problem", "entry_point"),),
}
_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "ScEnsemble": {"solution": "response", "final_solution": "response"},
    "MdEnsemble": {"final_solution": "solution"},
    "Format": {"solution": "response"},
    "Revise": {"revised_solution": "solution"},
}


def own_name(name: str) -> str:
    """The name of this operator in the catalog."""
    return _NAMES.get(name, name)


def names(operator: str) -> tuple[str, ...]:
    """Other names of an operator."""
    return tuple(name for name, own in _NAMES.items() if own == operator)


def forms(operator: str) -> tuple[tuple[str, ...], ...]:
    """Other lists of parameters that an operator's call may have."""
    return _FORMS.get(operator, ())


def spellings(operator: str) -> Mapping[str, str]:
    """Other names of its result's keys -> its own."""
    return _SPELLINGS.get(operator, {})


def completed(operator: str, arguments: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """Arguments completed by what a shorter form leaves out: the question's problem, an empty instruction."""
    if not any(set(form) == arguments.keys() for form in forms(operator)):
        return dict(arguments)
    missing = {"instruction": ""} if operator == "CustomCodeGenerate" else {"problem": question.statement}
    return {**missing, **arguments}
