"""Layer 2: one instruction per operator and domain, put first in the operator's own prompt.

A YAML file maps operators to instructions by domain; what is not named gets none:

    AnswerGenerate:
      math: Check every step of the calculation.
      qa: Answer in the words of the context.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.types import DOMAINS


@dataclass(frozen=True, slots=True)
class Enhancer:
    """``enhancer(operator, domain)`` is the instruction for it, or ``""``."""

    instructions: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __call__(self, operator: str, domain: str) -> str:
        return self.instructions.get((operator, domain), "")

    def as_json(self) -> dict[str, dict[str, str]]:
        """The instructions by operator and domain, for the log."""
        tree: dict[str, dict[str, str]] = {}
        for (operator, domain), instruction in self.instructions.items():
            tree.setdefault(operator, {})[domain] = instruction
        return tree


def load_enhancer(config: WorkflowConfig) -> Enhancer:
    """Layer 2 from ``config.enhancer``, limited to ``config.enhanced_operators`` if these are given.

    Raises ``ConfigError`` if the file cannot be read, or names an operator or a domain that does not exist.
    """
    known, only, path = {**OPERATORS, **load_operators(config.operators)}, config.enhanced_operators, config.enhancer
    if unknown := [name for name in only or () if name not in known]:
        raise ConfigError(f"workflow.enhanced_operators: unknown {unknown[0]!r}; there are {', '.join(known)}")
    if path is None:
        return Enhancer()
    try:
        document = plain_yaml(path)
    except ConfigError as error:
        raise ConfigError(f"workflow.enhancer: {path} cannot be read: {error}") from error
    instructions = _checked(document, str(path), known)
    return Enhancer({key: text for key, text in instructions.items() if only is None or key[0] in only})


def _checked(document: object, place: str, known: Collection[str]) -> dict[tuple[str, str], str]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{place}: expected operators with instructions by domain, got {document!r}")
    instructions: dict[tuple[str, str], str] = {}
    for operator, by_domain in document.items():
        if operator not in known:
            raise ConfigError(f"{place}: unknown operator {operator!r}; there are {', '.join(known)}")
        if not isinstance(by_domain, dict):
            raise ConfigError(f"{place}: {operator} must map domains to instructions, got {by_domain!r}")
        for domain, instruction in by_domain.items():
            if domain not in DOMAINS:
                raise ConfigError(f"{place}: {operator}: unknown domain {domain!r}; use {', '.join(DOMAINS)}")
            if not isinstance(instruction, str):
                raise ConfigError(f"{place}: {operator}.{domain} must be text, got {instruction!r}")
            instructions[operator, domain] = instruction.strip()
    return instructions
