"""Layer 1: the prompt the policy writes a workflow from.

The system part (task, operator documentation, rules) is the same for every problem of a step and comes first, then
domain guidance, examples from the experience buffer and the problem, so that prompts share the longest prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Domain, Question

SYSTEM = """Write a Python class Workflow that solves problems with operators.
Operators (call -> result keys):
{docs}
Rules: build every operator in __init__ as operator.Name(self.llm); await every call with all its arguments; \
use only the result keys shown; set every variable before it is used; return the answer as a string, then 0.0.
Signature: async def __call__(self, problem: str); for code also entry_point: str.
"""


#: Layer 1 guidance where no file is configured.
DEFAULT_GUIDANCE: Mapping[Domain, str] = {
    "math": "Return the final number.",
    "code": "Return the source of the function entry_point. Public tests are only seen by Test.",
    "qa": "Return the shortest answer that the context supports.",
}


@dataclass(frozen=True, slots=True)
class Example:
    """A workflow that did well on another problem of the same domain."""

    problem: str
    workflow: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """``system`` is shared by all problems of a step, ``user`` is the problem's own."""

    system: str
    user: str


def load_guidance(path: Path) -> dict[Domain, str]:
    """Domain guidance from a YAML file with a line for each of math, code and qa; raises ``ConfigError``."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"guidance file {path}: {error}") from error
    if not isinstance(loaded, dict) or set(loaded) != set(DOMAINS):
        raise ConfigError(f"guidance file {path} must map exactly {', '.join(DOMAINS)} to text, got {loaded!r}")
    return {domain: str(loaded[domain]) for domain in DOMAINS}


class Layer1:
    """Builds the prompt for a question; switched off, it is the problem alone. Raises ``ConfigError``."""

    def __init__(self, config: WorkflowConfig) -> None:
        self._config = config
        self._guidance = load_guidance(config.guidance) if config.guidance else DEFAULT_GUIDANCE

    @property
    def system(self) -> str:
        """What is the same for all questions."""
        return system_prompt(self._config.operators) if self._config.layer1 else ""

    def __call__(self, question: Question, examples: Sequence[Example] = ()) -> Prompt:
        if not self._config.layer1:
            return bare_prompt(question)
        return build_prompt(question, operators=self._config.operators, examples=examples, guidance=self._guidance)


def system_prompt(operators: Sequence[str]) -> str:
    """What all problems share, for the ``operators`` of the configuration."""
    return SYSTEM.format(docs=catalog.docs(catalog.load_operators(operators)))


def bare_prompt(question: Question) -> Prompt:
    """The problem without Layer 1: what an ablation measures it against."""
    entry = f"\nentry_point: {question.entry_point}" if question.entry_point else ""
    return Prompt("", f"Problem: {question.statement}{entry}\nWorkflow:\n")


def build_prompt(
    question: Question,
    *,
    operators: Sequence[str],
    examples: Sequence[Example] = (),
    guidance: Mapping[Domain, str],
) -> Prompt:
    """The prompt for one question; an example's problem and workflow are shown in full."""
    parts = [f"Domain: {question.domain}. {guidance[question.domain]}"]
    parts += [f"Example problem: {e.problem}\nExample workflow:\n{e.workflow}" for e in examples]
    parts.append(f"Problem: {question.statement}")
    if question.entry_point:
        parts.append(f"entry_point: {question.entry_point}")
    return Prompt(system_prompt(operators), "\n".join(parts) + "\nWorkflow:\n")
