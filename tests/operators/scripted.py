"""A chat model with scripted replies, and ``run_code`` in this process, for tests of operators."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.workflows import DOUBLE, QUESTION

from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox, no_enhancement
from llm_as_judge.types import Exchange, Question

#: A call of every operator with arguments it can use.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Custom": {"input": "6*7", "instruction": "Calculate."}, "AnswerGenerate": {"input": "6*7"},
    "CustomCodeGenerate": {"problem": "Square.", "entry_point": "f", "instruction": ""},
    "ScEnsemble": {"solutions": ["41", "42", "42"], "problem": "6*7"},
    "MdEnsemble": {"solutions": ["41", "42", "42"], "problem": "6*7"}, "Programmer": {"problem": "6*7"},
    "Test": {"problem": "Square.", "solution": DOUBLE, "entry_point": "f"},
    "Format": {"problem": "6*7", "solution": "It is 42."}, "Review": {"problem": "6*7", "solution": "41"},
    "Revise": {"problem": "6*7", "solution": "41", "feedback": "Too small."},
}  # fmt: skip


class Chat:
    """Answers with its replies in turn, repeating the last one, or by a function of the prompt."""

    def __init__(self, *replies: str, by: Callable[[str], str] | None = None) -> None:
        self._replies = list(replies)
        self._by = by
        self.prompts: list[str] = []
        self.most_at_once = 0
        self._under_way = 0

    async def chat(self, prompt: str) -> Exchange:
        number = len(self.prompts)
        self.prompts.append(prompt)
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        await asyncio.sleep(0)
        self._under_way -= 1
        text = self._by(prompt) if self._by else self._replies[min(number, len(self._replies) - 1)]
        return Exchange(prompt, text, "stop", 1, 1, 0.0, 0.0)


@dataclass(frozen=True)
class Ran:
    outcome: str
    value: Any = None
    error: str = ""


@dataclass
class Runner:
    """Runs what the tests wrote themselves, without a sandbox; keeps the sources."""

    sources: list[str] = field(default_factory=list)

    async def __call__(
        self, source: str, *, call: str | None = None, args: Sequence[Any] = (), prelude: str = ""
    ) -> Ran:
        self.sources.append(source)
        namespace: dict[str, Any] = {}
        try:
            exec(source, namespace)
            return Ran("finished", namespace[call](*args) if call else None)
        except Exception as error:
            return Ran("raised", error=f"{type(error).__name__}: {error}")


def build(
    name: str,
    chat: Any,
    *,
    run_code: Any = None,
    question: Question = QUESTION,
    enhance: Callable[[str, str], str] = no_enhancement,
    **init: Any,
) -> Any:
    """The operator ``name`` with scripted tools."""
    return catalog.OPERATORS[name](Toolbox(chat, run_code or Runner(), question, enhance), **init)
