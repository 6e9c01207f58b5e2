"""One OpenAI-compatible chat endpoint as an async client: replies, what they cost, and whether it works at all.

``transport`` makes the calls and says why one failed. No message history is kept, and a client belongs to the event
loop of its first call.

    async with LLMClient(config.executor) as llm:
        print((await llm.chat("2+2?")).text)
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol

from llm_as_judge.config.schema import EndpointConfig
from llm_as_judge.errors import ProviderError
from llm_as_judge.llm.cache import ResponseCache
from llm_as_judge.llm.places import Load
from llm_as_judge.llm.transport import Transport, Unreadable, model_names, parse_json
from llm_as_judge.types import Exchange

#: Asked by ``check``; any reply will do.
_CHECK_PROMPT = "Reply with the word OK."
#: Seconds for which other addresses are preferred to one that failed.
_SHUNNED_S = 30.0


@dataclass(frozen=True, slots=True)
class LLMReply:
    """``cost`` is in the currency of the price table; a cached reply has the cost it was made at."""

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cost: float
    seconds: float
    cached: bool = False
    usage_known: bool = True  # False: the endpoint reported no usage and the tokens count as 0

    def answering(self, prompt: str) -> Exchange:
        """The prompt with this reply."""
        return Exchange(
            prompt, self.text, self.finish_reason, self.prompt_tokens, self.completion_tokens, self.cost, self.seconds
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a client has done so far. Tokens and cost are of ``calls``; replies from the cache cost nothing again."""

    calls: int = 0  # answered by the endpoint
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    cached: int = 0  # answered from the cache
    failed: int = 0  # not answered, all retries spent


class ChatModel(Protocol):
    """What the parts that need a model ask for; raises ``ProviderError`` when no reply can be had, ``RequestRefused``
    where the endpoint cannot give the ``response_format``, ``PromptTooLong`` where the prompt does not fit.
    """

    async def chat(
        self,
        prompt: str,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> LLMReply: ...


def derived_seed(*parts: object) -> int:
    """A seed in [0, 2**31) of what ``parts`` say; the same in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class LLMClient:
    """``ChatModel`` over HTTP; deterministic replies are kept in ``cache``. Raises ``ConfigError`` for an address that
    is none.
    """

    def __init__(self, config: EndpointConfig, cache: ResponseCache | None = None, *, backoff_s: float = 0.5) -> None:
        self.config = config
        self.usage = Usage()
        self._cache = cache
        urls = (config.base_url, *config.more_urls)
        self._servers = [
            Transport(config.model_copy(update={"base_url": url}), backoff_s=backoff_s) for url in dict.fromkeys(urls)
        ]
        self._failed = {server.root: -math.inf for server in self._servers}  # when, last

    async def __aenter__(self) -> LLMClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        for server in self._servers:
            await server.aclose()

    async def chat(
        self,
        prompt: str,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> LLMReply:
        """One user message in, one reply out; raises as ``ChatModel`` says. At temperature 0 a seed is not sent: it
        would only tell equal requests apart.
        """
        request = self._request(prompt, system, temperature, max_tokens)
        if seed is not None and request["temperature"] > 0:
            request["seed"] = seed
        if response_format is not None:
            request["response_format"] = dict(response_format)
        cache = self._cache if request["temperature"] == 0 or seed is not None else None
        entry = {"url": self._servers[0].root, **request}
        if cache is not None and (stored := cache.get(entry)) is not None:
            self.usage = replace(self.usage, cached=self.usage.cached + 1)
            return self._reply(stored, seconds=0.0, cached=True)
        message, seconds = await self._complete(request)
        if cache is not None:
            cache.put(entry, message)
        return self._reply(message, seconds=seconds, cached=False)

    def load(self) -> Load:
        """What the places for requests have been used for so far, at all addresses together."""
        return sum((server.places.load() for server in self._servers), Load())

    async def check(self) -> list[str]:
        """Whether the configured model answers, at each address: one short completion, never from the cache. Returns
        the names of the models served, none where a server does not list them.

        Raises ``ProviderError`` with address, model, cause and cure.
        """
        found: list[str] = []
        for server in self._servers:
            found += await self._check(server)
        return list(dict.fromkeys(found))

    async def _check(self, server: Transport) -> list[str]:
        names: list[str] = []
        try:
            names = await server.get("/models", model_names, self._who)
        except ProviderError as error:
            if error.cause not in ("model", "request", "reply"):  # else: a server without that list
                raise
        try:
            await self._complete(self._request(_CHECK_PROMPT), [server])
        except ProviderError as error:
            if error.cause == "model" and names:
                raise ProviderError(f"{error}; it serves {', '.join(names)}", error.cause) from error
            raise
        return names

    @property
    def _who(self) -> str:
        return f"model {self.config.model}"

    def _request(
        self,
        prompt: str,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> dict[str, Any]:
        config = self.config
        messages = [{"role": "system", "content": system}] if system else []
        request = {
            "model": config.model,
            "messages": [*messages, {"role": "user", "content": prompt}],
            "temperature": config.temperature if temperature is None else temperature,
            "top_p": config.top_p,
            "max_tokens": config.max_tokens if max_tokens is None else max_tokens,
        }
        return request | ({"reasoning_effort": config.reasoning_effort} if config.reasoning_effort else {})

    async def _post(self, request: Mapping[str, Any], servers: Sequence[Transport]) -> dict[str, Any]:
        """The least busy server's reply; where it cannot be had, the next one's. One that failed is asked last for a
        while.
        """
        left = list(servers)
        while True:
            now = time.monotonic()
            server = min(left, key=lambda s: (now - self._failed[s.root] < _SHUNNED_S, s.places.pressure))
            left.remove(server)
            try:
                return await server.post("/chat/completions", request, _message, self._who)
            except ProviderError as error:
                if error.cause not in ("connection", "timeout", "overload", "server"):
                    raise
                self._failed[server.root] = time.monotonic()
                if not left:
                    raise

    async def _complete(
        self, request: Mapping[str, Any], servers: Sequence[Transport] = ()
    ) -> tuple[dict[str, Any], float]:
        """The message of one completion and the seconds it took; counted."""
        started = time.monotonic()
        try:
            message = await self._post(request, servers or self._servers)
        except ProviderError:
            self.usage = replace(self.usage, failed=self.usage.failed + 1)
            raise
        usage = self.usage
        self.usage = replace(
            usage,
            calls=usage.calls + 1,
            prompt_tokens=usage.prompt_tokens + message["prompt_tokens"],
            completion_tokens=usage.completion_tokens + message["completion_tokens"],
            cost=usage.cost + self._cost(message),
        )
        return message, time.monotonic() - started

    def _cost(self, message: Mapping[str, Any]) -> float:
        config = self.config
        price_in, price_out = config.price_per_million_input, config.price_per_million_output
        return float(message["prompt_tokens"] * price_in + message["completion_tokens"] * price_out) / 1e6

    def _reply(self, message: Mapping[str, Any], *, seconds: float, cached: bool) -> LLMReply:
        return LLMReply(cost=self._cost(message), seconds=seconds, cached=cached, **message)


def _message(text: str) -> dict[str, Any]:
    """The parts of a chat completion that are kept; reasoning models may send null ``content``."""
    body = parse_json(text)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content, reasoning = (
            message.get("content"),
            message.get("reasoning_content") or message.get("reasoning"),
        )
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        said = str(content or "")
        if not reasoning and said.lstrip().startswith("<think>") and "</think>" in said:
            reasoning, said = said.lstrip()[len("<think>") :].split("</think>", 1)
        usage = body.get("usage")
        usage = usage if isinstance(usage, dict) and usage.get("prompt_tokens") is not None else {}
        return {
            "text": said.strip("\n") if reasoning else said,
            "reasoning": str(reasoning or ""),
            "finish_reason": str(choice.get("finish_reason") or "stop"),
            "prompt_tokens": int(usage.get("prompt_tokens") or 0),
            "completion_tokens": int(usage.get("completion_tokens") or 0),
            "usage_known": bool(usage),
        }
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Unreadable("no chat completion in the reply") from error
