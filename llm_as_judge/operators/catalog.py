"""Operators by name, those of ``operators.CLASSES`` and a user's own; their signatures, result keys and documentation.

A user's own operator is a class with ``NAME``, ``RESULT`` (key -> ``str`` or ``bool``), ``SUMMARY``, a constructor that
takes a ``Toolbox`` first, and an async ``__call__``. ``workflow.operators`` names it as ``package.module:Name`` or
``file.py:Name``; workflows call it by its ``NAME``.
"""

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from llm_as_judge.config.registry import did_you_mean, own_object
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.operators import CLASSES
from llm_as_judge.types import Question

#: Operator classes by their name in a workflow.
Operators = Mapping[str, Any]
OPERATORS: Operators = {cls.NAME: cls for cls in CLASSES}
#: Keys that every result has in addition, with their usual values.
COMMON: Mapping[str, Any] = {"parse_ok": True, "error": ""}


class Published(NamedTuple):
    """What AFlow's published graphs write of an operator, by dataset, version and descendant.

    Lint, the sandbox and the runner accept it; the policy's prompt does not mention it.
    """

    names: tuple[str, ...] = ()  # other names of the operator
    forms: tuple[tuple[str, ...], ...] = ()  # other lists of parameters that its call may have
    spellings: Mapping[str, str] = {}  # other names of its result's keys -> its own


PUBLISHED: Mapping[str, Published] = {
    "ScEnsemble": Published(
        ("QAScEnsemble",), (("solutions",),), {"solution": "response", "final_solution": "response"}
    ),
    "MdEnsemble": Published(forms=(("solutions",),), spellings={"final_solution": "solution"}),
    "Format": Published(forms=(("solution",),), spellings={"solution": "response"}),
    "CustomCodeGenerate": Published(forms=(("problem", "entry_point"),)),
    "Revise": Published(spellings={"revised_solution": "solution"}),
}


def published(operator: str) -> Published:
    return PUBLISHED.get(operator, Published())


def own_name(name: str) -> str:
    """Return the name of this operator in the catalog."""
    return next((own for own, other in PUBLISHED.items() if name in other.names), name)


def filled_in(operator: str, arguments: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """Complete arguments by what a published form leaves out: the question's problem, an empty instruction."""
    if not any(set(form) == arguments.keys() for form in published(operator).forms):
        return dict(arguments)
    missing = {"instruction": ""} if operator == "CustomCodeGenerate" else {"problem": question.statement}
    return {**missing, **arguments}


def load_operators(names: Iterable[str] | None) -> Operators:
    """Load the operators that ``workflow.operators`` names (None: the ten).

    Raises ``ConfigError`` for an unknown name, an object that is not an operator, and two operators of one name.
    """
    if names is None:
        return OPERATORS
    loaded: dict[str, Any] = {}
    for written in names:
        if written not in OPERATORS and ":" not in written:
            hint, known = did_you_mean(written, OPERATORS), ", ".join(sorted(OPERATORS))
            raise ConfigError(
                f"unknown operator {written!r}{f'; {hint}' if hint else '. '}There are {known}; write your own as "
                "'package.module:Name' or 'file.py:Name'"
            )
        operator = OPERATORS[written] if written in OPERATORS else own_object("operator", written)
        if written not in OPERATORS and (wrong := _defect(operator)):
            raise ConfigError(f"workflow.operators: {written!r} is not an operator: {wrong}")
        if (loaded.get(operator.NAME) or OPERATORS.get(operator.NAME, operator)) is not operator:
            raise ConfigError(
                f"workflow.operators: {written!r}: there is an operator {operator.NAME!r} already; give it another NAME"
            )
        if operator.NAME in loaded:
            raise ConfigError(f"workflow.operators names {written!r} twice; delete one")
        loaded[operator.NAME] = operator
    return loaded


def _defect(operator: Any) -> str:
    """Say why a user's own object cannot be used as an operator, with the cure; ``""`` if it can."""
    if not inspect.isclass(operator):
        return "write a class"
    name, keys, summary = (getattr(operator, field, None) for field in ("NAME", "RESULT", "SUMMARY"))
    if not (isinstance(name, str) and name.isidentifier()):
        return f"NAME must be the name workflows call it by, got {name!r}"
    if not (isinstance(keys, Mapping) and keys and all(isinstance(kind, type) for kind in keys.values())):
        return f"RESULT must map the keys of its result to their types, got {keys!r}"
    if not (isinstance(summary, str) and summary):
        return "SUMMARY must say in a few words what it does"
    if not inspect.iscoroutinefunction(operator.__call__):
        return "write async def __call__(self, ...)"
    try:
        signature(operator), init_signature(operator)
    except ConfigError as error:
        return str(error)
    return ""


@cache
def _parameters(function: Any, given: int, wanted: str) -> inspect.Signature:
    """Return the signature without its first ``given`` parameters."""
    full = inspect.signature(function)
    parameters = list(full.parameters.values())
    if len(parameters) < given or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise ConfigError(f"write {wanted} with named parameters, got {function.__name__}{full}")
    return full.replace(parameters=parameters[given:])


def signature(operator: Any) -> inspect.Signature:
    return _parameters(operator.__call__, 1, "__call__(self, ...)")


def init_signature(operator: Any) -> inspect.Signature:
    """Return parameters of ``operator.Name(llm, ...)`` after the LLM."""
    return _parameters(operator.__init__, 2, "__init__(self, tools, ...)")


def executor_words(operator: Any) -> list[str]:
    """List keywords that name the executor in ``operator.Name(llm, ...)``, unless they are parameters of its own."""
    return [word for word in ("executor", "model") if word not in init_signature(operator).parameters]


def no_executor(named: object, known: Iterable[str]) -> str:
    return f"there is no executor {named!r}; there are {', '.join(known)}"


def type_word(parameter: inspect.Parameter) -> str:
    """Return a parameter's annotation as it is written: ``str``, ``list[str]``, or ``""``."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def result_keys(operator: Any) -> dict[str, str]:
    """List every key of the operator's result with its type word, ``parse_ok`` and ``error`` included."""
    own = {key: kind.__name__ for key, kind in operator.RESULT.items()}
    return {**own, **{key: type(value).__name__ for key, value in COMMON.items()}}


def call_line(operator: Any) -> str:
    """Return the call as a workflow writes it: ``Test(problem, solution, entry_point, test_loop=3)``."""
    parameters = signature(operator).parameters.values()
    parts = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    return f"{operator.NAME}({', '.join(parts)})"


def docs(operators: Operators = OPERATORS) -> str:
    """Write the Layer 1 documentation, one line an operator: call, result keys, summary."""
    return "\n".join(f"{call_line(o)} -> {', '.join(o.RESULT)}: {o.SUMMARY}" for o in operators.values())
