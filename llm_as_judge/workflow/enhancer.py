"""Layer 2: one instruction per operator and domain, placed first in the operator's own prompt.

A YAML file maps operators to instructions by domain; others get none:

    AnswerGenerate:
      math: Check every step of the calculation.
      qa: Answer in the words of the context.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.types import DOMAINS, Domain

_FORM = TypeAdapter(dict[str, dict[Domain, str]])


@dataclass(frozen=True, slots=True)
class Enhancer:
    """``enhancer(operator, domain)`` is the instruction for it, or ``""``."""

    instructions: Mapping[str, Mapping[str, str]]  # by operator and domain

    def __call__(self, operator: str, domain: str) -> str:
        return self.instructions.get(operator, {}).get(domain, "")


def load_enhancer(config: WorkflowConfig, domains: Collection[str] = DOMAINS) -> Enhancer:
    """Load Layer 2 from ``config.enhancer``, by ``domains``.

    Raises ``ConfigError`` if it is unreadable or has an unknown operator or domain.
    """
    known, path = {**OPERATORS, **load_operators(config.operators)}, config.enhancer
    document: dict[str, dict[Domain, str]] = {}
    if path is not None:
        try:
            document = _FORM.validate_python(plain_yaml(path) or {})
        except ConfigError as error:
            raise ConfigError(f"workflow.enhancer: {path} cannot be read: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{path}: {place}: {first['msg']}; map operators to instructions by domain") from None
    if unknown := [name for name in document if name not in known]:
        raise ConfigError(f"{path}: unknown operator {unknown[0]!r}; there are {', '.join(known)}")
    for name, domain in ((name, domain) for name, own in document.items() for domain in own):
        if domain not in domains:
            raise ConfigError(f"{path}: {name}.{domain}: there is no such domain; there are {', '.join(domains)}")
    return Enhancer({name: {domain: text.strip() for domain, text in own.items()} for name, own in document.items()})
