"""What all operators share: the tools handed to them, and the result type.

An operator class is the one place for its signature, prompt, result keys and documentation; Layer 1, lint and
the sandbox's proxies are generated from it (``catalog``). Deliberately absent: inheritance, registries, global LLMs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from llm_as_judge.operators.prompts import FULL, Prompts
from llm_as_judge.sandbox.results import CodeResult
from llm_as_judge.types import Question


class Reply(Protocol):
    """What an operator reads of a model's reply."""

    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str: ...


def cut_off(reply: Reply) -> bool:
    """The reply was longer than it may be: what it did not close is not there as it was meant."""
    return reply.finish_reason == "length"


class Chat(Protocol):
    """One user message in, one reply out; raises ``ProviderError`` when no reply can be had."""

    async def chat(self, prompt: str, *, temperature: float | None = None, max_tokens: int | None = None) -> Reply: ...


RunCode = Callable[..., Coroutine[Any, Any, CodeResult]]


def no_enhancement(operator: str, domain: str) -> str:
    """Layer 2 switched off."""
    return ""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Handed to every operator: the executor model and its prompts, the sandbox, the question and Layer 2.

    ``run_code(source, call=name, args=[...])`` runs code in the sandbox; ``enhance(operator, domain)`` gives the
    Layer 2 instruction put before the operator's prompt, or ``""``.
    """

    llm: Chat
    run_code: RunCode
    question: Question
    enhance: Callable[[str, str], str] = no_enhancement
    prompts: Prompts = FULL

    async def ask(self, operator: str, prompt: str, *, temperature: float | None = None) -> str:
        """Send ``prompt`` with its Layer 2 instruction and return the reply's text."""
        return (await self.reply(operator, prompt, temperature=temperature)).text

    async def reply(self, operator: str, prompt: str, *, temperature: float | None = None) -> Reply:
        """The same with the reason why the reply ended."""
        instruction = self.enhance(operator, self.question.domain)
        if instruction:
            prompt = f"{instruction}\n{prompt}"
        return await self.llm.chat(prompt, temperature=temperature)


class Operator(Protocol):
    """The shape every operator class has. ``RESULT`` maps each key, always present, to ``str`` or ``bool``."""

    NAME: ClassVar[str]
    RESULT: ClassVar[Mapping[str, type]]
    SUMMARY: ClassVar[str]

    def __init__(self, tools: Toolbox) -> None: ...


def result(parse_ok: bool = True, error: str = "", **keys: Any) -> dict[str, Any]:
    """An operator's reply to the workflow: its documented keys plus ``parse_ok`` and ``error``."""
    return {**keys, "parse_ok": parse_ok, "error": error}


def listing(solutions: list[str]) -> str:
    """Solutions as lettered lines, for prompts that ask for a choice."""
    return "\n".join(f"{chr(ord('A') + i)}: {s}" for i, s in enumerate(solutions))
