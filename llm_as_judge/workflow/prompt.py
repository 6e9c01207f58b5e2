"""Layer 1: the prompt from which the policy writes a workflow, full or short.

The shared parts (task, operators, rules) come first, then domain guidance, examples and the problem, so that prompts
have the longest common prefix. The short prompt is the one the nano policy is trained on; the full one states the whole
contract for any instruct model, and shows an example until the experience buffer has better ones.

    layer1 = Layer1(config.workflow, config.data.domains, config.choices)
    ids = policy.encode(layer1(question, examples))
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from llm_as_judge.config.data import DomainConfig
from llm_as_judge.config.endpoints import ExecutorConfig
from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import DOMAINS, Domain, Prompt, Question
from llm_as_judge.workflow.contract import ASKED_PREFILL, FENCED_PREFILL, contract
from llm_as_judge.workflow.shapes import Example, example

TEXTS = plain_yaml(Path(__file__).with_name("prompt.yaml"))


def load_guidance(path: Path, others: Collection[str] = ()) -> dict[Domain, str]:
    """Load domain guidance from a YAML file: a line for each of math, code and qa, and for any of ``others``.

    Raises ``ConfigError``.
    """
    try:
        loaded = plain_yaml(path)
    except ConfigError as error:
        raise ConfigError(f"guidance file {path}: {error}") from error
    known = (*DOMAINS, *others)
    if not isinstance(loaded, dict) or not set(DOMAINS) <= set(loaded) <= set(known):
        raise ConfigError(f"guidance file {path} must map exactly {', '.join(known)} to text, got {loaded!r}")
    return {domain: str(text) for domain, text in loaded.items()}


def executors_text(choices: Mapping[str, ExecutorConfig]) -> str:
    """Write the executors with their prices and descriptions; the default is ``""``. Empty if no executor is named."""
    lines = []
    for name, own in choices.items():
        prices = f"{own.price_per_million_input:g} per million tokens in, {own.price_per_million_output:g} out"
        about = "; ".join(filter(None, [prices if own.cost(1, 1) else "", own.description]))
        lines.append(": ".join(filter(None, [f"- {name or 'default'}", about])))
    return str(TEXTS["executors"]).format(name=[*choices][-1], lines="\n".join(lines)) if choices else ""


class Layer1:
    """The prompt of the ``workflow`` section, with the executors to choose among (``Config.choices``).

    Raises ``ConfigError`` if its guidance or operators cannot be read.
    """

    def __init__(
        self,
        config: WorkflowConfig,
        domains: Mapping[str, DomainConfig] = MappingProxyType({}),
        choices: Mapping[str, ExecutorConfig] = MappingProxyType({}),
    ) -> None:
        self._config = config
        built_in: Mapping[Domain, str] = TEXTS["guidance"][config.prompt]
        own = {name: domain.guidance for name, domain in domains.items() if domain.guidance}
        self._guidance = {**own, **(load_guidance(config.guidance, domains) if config.guidance else built_in)}
        self._operators = load_operators(config.operators)
        self.system = ""  # the part that all problems share
        if config.layer1:
            text = TEXTS["short"].format(docs=catalog.docs(self._operators))
            text = text if config.prompt == "short" else contract(self._operators, config.max_calls)
            self.system = text + executors_text(choices)

    def __call__(self, question: Question, examples: Sequence[Example] = ()) -> Prompt:
        config = self._config
        if not config.show_problem:
            question = replace(question, text="?", context="")
        entry = f"\nentry_point: {question.entry_point}" if question.entry_point else ""
        asked = f"{question.statement}{entry}"
        ending = f"Problem: {asked}\nWorkflow:\n"
        if not config.layer1:
            return Prompt("", ending)
        hint = self._guidance.get(question.domain) or self._guidance[question.kind]  # by default that of its kind
        if config.prompt == "short":
            shown = [f"Example problem: {e.problem}\nExample workflow:\n{e.workflow}" for e in examples]
            user = "\n".join([f"Domain: {question.domain}. {hint}", *shown, ending])
            return Prompt(self.system, user, prefill=ASKED_PREFILL if config.prefill else "")

        def request(problem: str) -> str:
            return f"Problem ({question.domain}): {problem}\n\nWrite the workflow. {hint}"

        some = examples or example(question.kind, self._operators)
        turns = tuple((request(e.problem), f"```python\n{e.workflow.strip()}\n```") for e in some)
        return Prompt(self.system, request(asked), turns, FENCED_PREFILL if config.prefill else "")
