"""Layer 2: one instruction per operator and domain, placed first in the operator's own prompt.

A YAML file maps operators to instructions by domain; others get none:

    AnswerGenerate:
      math: Check every step of the calculation.
      qa: Answer in the words of the context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.types import Domain

_FORM = TypeAdapter(dict[str, dict[Domain, str]])


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
    for source, names in (("workflow.enhanced_operators", only or ()), (path, document)):
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"{source}: unknown operator {unknown[0]!r}; there are {', '.join(known)}")
    chosen = {name: texts for name, texts in document.items() if only is None or name in only}
    return Enhancer({(name, domain): text.strip() for name in chosen for domain, text in chosen[name].items()})
