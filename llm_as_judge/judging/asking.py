"""Requests to a judge model for one verdict, with a JSON schema until the server refuses one or replies are unreadable.

If a reply is cut off or has no verdict, the model is asked once more with more tokens and another wording: an identical
request cannot help at temperature 0.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.errors import PromptRefused, ProviderError, RequestRefused
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.types import Exchange

T = TypeVar("T")
logger = logging.getLogger(__name__)

_MOST_OBJECTS = 20
_MOST_UNREADABLE = 5  # replies to a JSON schema, after which none is sent
_RETRY_TEMPERATURE = 0.3
#: Failures that a text may cause; others are the endpoint's own.
_DUE_TO_TEXTS = ("filter", "empty", "timeout", "server")
#: How often that must be seen of what an overloaded server may do by chance.
_CHECKS = {"server": 8, "timeout": 2}
_CONTROLS = count()  # numbers of control requests
_THOUGHT, _THINKING = (re.compile(rf"[<\[]{end}think(?:ing)?[>\]]", re.IGNORECASE) for end in ("/", ""))
#: Finish reasons of a reply that the model has ended itself, as servers name them.
STOPPED = re.compile(r"stop|eos|end_turn|\bcomplete", re.IGNORECASE)


class Asking:
    """Asks as the section ``judge`` says. The embedded judge knows no schemas."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._structured = config.structured and config.provider != "embedded"
        self._unreadable = 0

    def request(self, attempt: int, system: str | None) -> dict[str, Any]:
        """Build the parameters of a request: at the second attempt more tokens and another seed."""
        temperature = self._config.temperature
        return {
            "system": system,
            "temperature": max(temperature, _RETRY_TEMPERATURE) if attempt else temperature,
            "max_tokens": self._config.max_tokens * (1 + attempt),
            "seed": attempt,
        }

    async def verdict(
        self, llm: ChatModel, heard: list[Exchange], system: str | None, prompts: tuple[str, str], retry: str,
        schema: Mapping[str, Any], read: Callable[[str], T | None],
    ) -> tuple[T | None, str]:  # fmt: skip
        """Return what ``read`` makes of a reply, and the reply; None and why if two replies have no verdict.

        ``prompts``: with the schema and without; ``retry`` ends the second request.
        """
        problem = ""
        for attempt in range(2):
            request, reply = self.request(attempt, system), None
            if structured := self._structured and not attempt:
                try:
                    reply = await llm.chat(prompts[0], **request, response_format=schema)
                except RequestRefused as error:
                    logger.warning("the judge's server refuses JSON schemas, plain replies from here on: %s", error)
                    self._structured = structured = False
            heard.append(reply := reply or await llm.chat(prompts[1] + retry * attempt, **request))
            found = read(reply.reply)
            if structured:
                self._unreadable += found is None
                self._structured = self._unreadable < _MOST_UNREADABLE
            if not STOPPED.search(reply.finish_reason):
                problem = f"cut off at {request['max_tokens']} tokens (finish_reason {reply.finish_reason})"
            elif found is None:
                problem = f"no verdict in {reply.reply[-120:]!r}"
            else:
                return found, " ".join(reply.reply[:2000].split())[:200]
        return None, f"judge abstained twice, last: {problem}"


async def fitting(
    ask: Callable[[int], Awaitable[tuple[T | None, str]]], size: int, lengths: Sequence[int],
    control: Callable[[int], Awaitable[tuple[object, str]]],
) -> tuple[T | bool | None, str]:  # fmt: skip
    """Find what ``ask`` makes of texts of ``size``, cut to the first of ``lengths`` at which the model replies.

    If it is refused, withheld, late or an error at any length, before and after ``control`` without those texts is
    answered, they are at fault: False; what an overloaded server may do by chance must happen several times. None, and
    why, for no verdict or no reply. ``control`` gets a number that makes it a request which no cache answers.
    """

    async def tried(longest: int) -> tuple[T | None, str, str]:
        try:
            return *await ask(longest), ""
        except ProviderError as error:
            if not isinstance(error, PromptRefused) and error.cause not in _DUE_TO_TEXTS:
                raise
            return None, f"the judge refuses this answer: {error}", error.cause

    why = cause = ""
    try:
        for longest in lengths:
            if not why or size > longest:
                found, why, cause = await tried(longest)
                if found is not None:
                    return found, why
        for _ in range(_CHECKS.get(cause, 1)):
            if not cause or (await control(next(_CONTROLS)))[0] is None:
                return None, why
            found, why, cause = await tried(lengths[-1])
            if found is not None:
                return found, why
    except ProviderError as error:
        return None, why if cause else f"judge unreachable: {error}"
    return (False if cause else None), why


def schema_of(name: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Build the ``response_format`` of an object with these properties, in their order."""
    fields = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": fields}}


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a reply outside its reasoning, whatever is around them."""
    text, place = without_thinking(text), 0
    for _ in range(_MOST_OBJECTS):
        if (place := text.find("{", place)) < 0:
            return
        try:
            loaded, place = json.JSONDecoder().raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
        else:
            yield loaded


def without_thinking(text: str) -> str:
    return _THINKING.split(_THOUGHT.split(text)[-1])[0]
