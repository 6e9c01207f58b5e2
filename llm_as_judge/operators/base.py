"""Base class, toolbox and result format of all operators.

An operator class is the one place for its signature, result keys and documentation; Layer 1, lint and the sandbox's
proxies are generated from it (``catalog``). Its prompts are in ``prompts``.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from llm_as_judge.operators.prompts import FULL, Prompts
from llm_as_judge.sandbox.results import CodeResult
from llm_as_judge.types import Exchange, Question


class Chat(Protocol):
    """One user message in, one reply out; raises ``ProviderError`` if there is no reply."""

    async def chat(self, prompt: str) -> Exchange: ...


def no_enhancement(operator: str, domain: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The executor model and its prompts, the sandbox, the question and Layer 2."""

    llm: Chat
    run_code: Callable[..., Coroutine[Any, Any, CodeResult]]  # (source, call=name, args=[...]), in the sandbox
    question: Question
    enhance: Callable[[str, str], str] = no_enhancement  # (operator, domain) -> what goes before the prompt, or ""
    prompts: Prompts = FULL

    async def reply(self, operator: str, prompt: str) -> Exchange:
        """Ask ``prompt`` with its Layer 2 instruction."""
        instruction = self.enhance(operator, self.question.domain) or self.enhance(operator, self.question.kind)
        return await self.llm.chat(f"{instruction}\n{prompt}" if instruction else prompt)

    async def ask(self, operator: str, prompt: str) -> str:
        return (await self.reply(operator, prompt)).reply


class Operator:
    """Base of the ten operators: ``RESULT`` has the type of each key of the result, ``SUMMARY`` is for the policy."""

    NAME: ClassVar[str]  # that of the class
    RESULT: ClassVar[Mapping[str, type]]
    SUMMARY: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.NAME = vars(cls).get("NAME", cls.__name__)

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools


def result(parse_ok: bool = True, error: str = "", **keys: Any) -> dict[str, Any]:
    """Build an operator's reply to the workflow: its documented keys plus ``parse_ok`` and ``error``."""
    return {**keys, "parse_ok": parse_ok, "error": error}
