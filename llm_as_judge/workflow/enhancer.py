"""Layer 2: one instruction line per operator and domain, put first in the operator's own prompt.

A YAML file of operators, each with instructions by domain; what is not named gets none:

    AnswerGenerate:
      math: Check every step of the calculation.
      qa: Answer in the words of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import no_enhancement
from llm_as_judge.types import DOMAINS


def load_enhancer(path: Path | str | None) -> Callable[[str, str], str]:
    """``(operator, domain) -> instruction`` or ``""``; None switches Layer 2 off.

    Raises:
        ConfigError: the file cannot be read, or names an operator or a domain that does not exist.
    """
    if path is None:
        return no_enhancement
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"workflow.enhancer: {path} cannot be read: {error}") from error
    instructions = _checked(document, str(path))

    def enhance(operator: str, domain: str) -> str:
        return instructions.get((operator, domain), "")

    return enhance


def _checked(document: object, place: str) -> dict[tuple[str, str], str]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{place}: expected operators with instructions by domain, got {document!r}")
    instructions: dict[tuple[str, str], str] = {}
    for operator, by_domain in document.items():
        if operator not in catalog.OPERATORS:
            there = ", ".join(catalog.OPERATORS)
            raise ConfigError(f"{place}: unknown operator {operator!r}; there are {there}")
        if not isinstance(by_domain, dict):
            raise ConfigError(f"{place}: {operator} must map domains to instructions, got {by_domain!r}")
        for domain, instruction in by_domain.items():
            if domain not in DOMAINS:
                raise ConfigError(f"{place}: {operator}: unknown domain {domain!r}; use {', '.join(DOMAINS)}")
            if not isinstance(instruction, str):
                raise ConfigError(f"{place}: {operator}.{domain} must be text, got {instruction!r}")
            instructions[operator, domain] = instruction.strip()
    return instructions
