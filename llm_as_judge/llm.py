"""One OpenAI-compatible chat endpoint as an async client: concurrency, retries, usage and price.

Failures that may pass (connection, time-out, 408, 409, 429, 5xx, a broken body) are retried with jittered
backoff; the others raise ``ProviderError`` at once, naming address, model and cure. Nothing is streamed, no
message history is kept, and a client belongs to the event loop of its first call.

    async with LLMClient(LLMSettings("http://127.0.0.1:8002/v1", key, "gpt-oss-120b")) as llm:
        print((await llm.chat("2+2?")).text)
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from llm_as_judge.cache import ResponseCache
from llm_as_judge.errors import ConfigError, ProviderError, RequestRefused

logger = logging.getLogger(__name__)

_RETRIED = frozenset((408, 409, 429))
_LONGEST_WAIT_S = 60.0
_QUOTED_CHARS = 300


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


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """``base_url`` ends in the version (``.../v1``); an address without a path gets ``/v1``."""

    base_url: str
    api_key: str = field(repr=False)
    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 2048
    timeout_s: float = 120.0
    max_retries: int = 4
    concurrency: int = 32
    price_per_million_input: float = 0.0
    price_per_million_output: float = 0.0
    reasoning_effort: str = ""  # of reasoning models; empty: not sent
    no_proxy: str = "localhost,127.0.0.1"  # hosts, separated by commas, reached without the system's proxy


class ChatModel(Protocol):
    """What the parts that need a model ask for; raises ``ProviderError`` when no reply can be had, ``RequestRefused``
    where the endpoint cannot give the ``response_format``.
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


class _Retryable(Exception):
    """A failure that may pass; ``wait_s`` is what the server asked for."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class LLMClient:
    """``ChatModel`` over HTTP. ``backoff_s`` is the mean first wait before a retry; it doubles every time."""

    def __init__(self, settings: LLMSettings, cache: ResponseCache | None = None, *, backoff_s: float = 0.5) -> None:
        self.settings = settings
        self._cache = cache
        self._backoff_s = backoff_s
        address = urlsplit(settings.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"base_url must look like http://host:port/v1, got {settings.base_url!r}")
        self._base_url = settings.base_url.rstrip("/") + ("" if address.path.strip("/") else "/v1")
        self._direct = address.hostname in [host.strip() for host in settings.no_proxy.split(",")]
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(settings.concurrency)

    async def __aenter__(self) -> LLMClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        """One user message in, one reply out. Raises ``ProviderError`` when all retries are spent, ``RequestRefused``
        where the endpoint does not take ``response_format`` (a JSON schema) or another field.
        """
        settings = self.settings
        messages = [{"role": "system", "content": system}] if system else []
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": [*messages, {"role": "user", "content": prompt}],
            "temperature": settings.temperature if temperature is None else temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens if max_tokens is None else max_tokens,
        }
        if seed is not None:
            request["seed"] = seed
        if settings.reasoning_effort:
            request["reasoning_effort"] = settings.reasoning_effort
        if response_format is not None:
            request["response_format"] = dict(response_format)
        cache = self._cache if request["temperature"] == 0 or seed is not None else None
        entry = {"url": self._base_url, **request}
        if cache is not None and (stored := cache.get(entry)) is not None:
            return self._reply(stored, seconds=0.0, cached=True)
        started = time.monotonic()
        message = await self._with_retries("POST", "/chat/completions", request)
        if cache is not None:
            cache.put(entry, message)
        return self._reply(message, seconds=time.monotonic() - started, cached=False)

    async def check(self) -> list[str]:
        """Names of the models served (GET ``/models``). Raises ``ProviderError`` with the cure."""
        body = await self._with_retries("GET", "/models", None)
        return [str(model.get("id", "")) for model in body["data"]]

    def _reply(self, message: Mapping[str, Any], *, seconds: float, cached: bool) -> LLMReply:
        tokens_in, tokens_out = message["prompt_tokens"], message["completion_tokens"]
        settings = self.settings
        price = tokens_in * settings.price_per_million_input + tokens_out * settings.price_per_million_output
        return LLMReply(
            text=message["text"],
            reasoning=message["reasoning"],
            finish_reason=message["finish_reason"],
            prompt_tokens=tokens_in,
            completion_tokens=tokens_out,
            cost=price / 1e6,
            seconds=seconds,
            cached=cached,
            usage_known=message["usage_known"],
        )

    async def _with_retries(self, method: str, path: str, request: Mapping[str, Any] | None) -> dict[str, Any]:
        attempts = self.settings.max_retries + 1
        for attempt in range(attempts):
            try:
                async with self._slots:
                    body = await self._send(method, path, request)
                return _models(body) if request is None else _message(body)
            except _Retryable as error:
                if attempt + 1 == attempts:
                    raise ProviderError(self._describe(f"{error} (after {attempts} attempts)")) from error
                wait = self._backoff_s * 2**attempt * random.uniform(0.5, 1.5)
                wait = min(max(wait, error.wait_s or 0.0), _LONGEST_WAIT_S)
                logger.info("%s: %s; next attempt in %.1f s", self._base_url, error, wait)
                await asyncio.sleep(wait)
        raise ValueError(f"max_retries must be >= 0, got {self.settings.max_retries}")

    async def _send(self, method: str, path: str, request: Mapping[str, Any] | None) -> Any:
        """One HTTP exchange: the decoded body, or ``_Retryable``, or ``ProviderError``."""
        try:
            async with self._connected().request(method, self._base_url + path, json=request) as response:
                status, wait, text = (
                    response.status,
                    response.headers.get("Retry-After"),
                    await response.text(),
                )
        except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
            raise _Retryable(f"no reply within timeout_s = {self.settings.timeout_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise _Retryable(f"no connection ({error}); is the server running there?") from error
        except (aiohttp.ClientError, UnicodeDecodeError) as error:
            raise _Retryable(f"the reply broke off ({type(error).__name__}: {error})") from error
        if status >= 500 or status in _RETRIED:
            raise _Retryable(f"HTTP {status}: {_quote(text)}", _seconds(wait))
        if status >= 400:
            refused = RequestRefused if status in (400, 422) else ProviderError
            raise refused(self._describe(f"HTTP {status}: {_quote(text)}; {_cure(status)}"))
        try:
            return json.loads(text)
        except ValueError as error:
            raise _Retryable(f"the reply is not JSON: {_quote(text)}") from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self.settings.api_key}"} if self.settings.api_key else {},
                timeout=aiohttp.ClientTimeout(total=self.settings.timeout_s),
                connector=aiohttp.TCPConnector(limit=0),  # the semaphore is the limit
                trust_env=not self._direct,
            )
        return self._session

    def _describe(self, what: str) -> str:
        return f"{self._base_url} (model {self.settings.model}): {what}"


def _models(body: Any) -> dict[str, Any]:
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        raise _Retryable(f"no list of models in the reply: {_quote(json.dumps(body))}")
    return {"data": data}


def _message(body: Any) -> dict[str, Any]:
    """The parts of a chat completion that are kept; reasoning models may send null ``content``."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content, reasoning = (
            message.get("content"),
            message.get("reasoning_content") or message.get("reasoning"),
        )
        usage = body.get("usage")
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        text = str(content or "")
        if not reasoning and text.lstrip().startswith("<think>") and "</think>" in text:
            reasoning, text = text.lstrip()[len("<think>") :].split("</think>", 1)
        known = isinstance(usage, dict) and usage.get("prompt_tokens") is not None
        return {
            "text": text.strip("\n") if reasoning else text,
            "reasoning": str(reasoning or ""),
            "finish_reason": str(choice.get("finish_reason") or "stop"),
            "prompt_tokens": int(usage["prompt_tokens"]) if known else 0,
            "completion_tokens": int(usage.get("completion_tokens") or 0) if known else 0,
            "usage_known": known,
        }
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _Retryable(f"no chat completion in the reply: {_quote(json.dumps(body))}") from error


def _quote(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= _QUOTED_CHARS else short[:_QUOTED_CHARS] + "..."


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` in seconds, given as a number or as an HTTP date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _cure(status: int) -> str:
    if status in (401, 403):
        return "check api_key (usually the environment variable OPENAI_API_KEY)"
    if status == 404:
        return "check base_url (it ends in /v1) and the model's name"
    return "the endpoint refuses this request: check max_tokens, prompt length and model"
