"""What all operators share: the tools handed to them, the result type and the parsing of replies.

An operator class is the one place for its signature, prompt, result keys and documentation; Layer 1, lint and
the sandbox's proxies are generated from it (``catalog``). Deliberately absent: inheritance, registries, global LLMs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from llm_as_judge.types import Question


class Reply(Protocol):
    """What an operator reads of a model's reply."""

    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str: ...


class Chat(Protocol):
    """One user message in, one reply out; raises ``ProviderError`` when no reply can be had."""

    async def chat(self, prompt: str, *, temperature: float | None = None, max_tokens: int | None = None) -> Reply: ...


class CodeOutcome(Protocol):
    """Result of running code in the sandbox; ``outcome`` is ``finished`` when it ran to its end."""

    @property
    def outcome(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def error(self) -> str: ...


RunCode = Callable[..., Awaitable[CodeOutcome]]


def no_enhancement(operator: str, domain: str) -> str:
    """Layer 2 switched off."""
    return ""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Handed to every operator: the executor model, the sandbox, the question and Layer 2.

    ``run_code(source, call=name, args=[...])`` runs code in the sandbox; ``enhance(operator, domain)`` gives the
    Layer 2 instruction put before the operator's prompt, or ``""``.
    """

    llm: Chat
    run_code: RunCode
    question: Question
    enhance: Callable[[str, str], str] = no_enhancement

    async def ask(self, operator: str, prompt: str, *, temperature: float | None = None) -> str:
        """Send ``prompt`` with its Layer 2 instruction and return the reply's text."""
        instruction = self.enhance(operator, self.question.domain)
        if instruction:
            prompt = f"{instruction}\n{prompt}"
        reply = await self.llm.chat(prompt, temperature=temperature)
        return reply.text


class Operator(Protocol):
    """The shape every operator class has. ``RESULT`` maps each key, always present, to ``str`` or ``bool``."""

    NAME: ClassVar[str]
    RESULT: ClassVar[Mapping[str, type]]
    SUMMARY: ClassVar[str]

    def __init__(self, tools: Toolbox) -> None: ...


def result(parse_ok: bool = True, error: str = "", **keys: Any) -> dict[str, Any]:
    """An operator's reply to the workflow: its documented keys plus ``parse_ok`` and ``error``."""
    return {**keys, "parse_ok": parse_ok, "error": error}


def field(text: str, name: str) -> str | None:
    """The last ``<name>...</name>`` of a reply, stripped; an unclosed last tag runs to the next tag or the end."""
    closed = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if closed:
        return str(closed[-1]).strip()
    unclosed = re.search(rf".*<{name}>([^<]*)", text, re.DOTALL)
    return unclosed.group(1).strip() if unclosed else None


def letter(text: str, count: int) -> int | None:
    """Index of the first option letter named in ``text`` (``B``, ``B.``, ``Option B``), if among ``count``."""
    for found in re.findall(r"(?<![A-Za-z])([A-Za-z])(?![A-Za-z])", text):
        index = ord(found.upper()) - ord("A")
        if index < count:
            return index
    return None


def listing(solutions: list[str]) -> str:
    """Solutions as lettered lines, for prompts that ask for a choice."""
    return "\n".join(f"{chr(ord('A') + i)}: {s}" for i, s in enumerate(solutions))
