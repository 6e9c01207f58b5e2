"""Async client for one OpenAI-compatible chat endpoint, with reply cache and usage accounting.

Equal deterministic requests, at temperature 0 or with a seed, are sent once: a cached reply keeps its cost, but took no
time. The client keeps no message history and belongs to the event loop of its first call. ``transport`` makes the
requests.

    async with LLMClient(config.executor) as llm:
        print((await llm.chat("2+2?")).reply)
"""

import asyncio
import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.errors import Cause, PromptRefused, ProviderError, RequestRefused
from llm_as_judge.llm.concurrency import Load, Places
from llm_as_judge.types import Exchange

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds for which other addresses are preferred to one that failed.
_AVOID_S = 30.0
_LONGEST_REPLY = 4 << 20  # bytes
#: Upper bound on the tokens that a chat template adds to a message.
TEMPLATE_TOKENS = 64
_MOST_TOKENS = 1 << 40  # a usage above it is an error of the endpoint
#: Cached replies; the oldest is dropped first. A long run makes hundreds of thousands of requests.
_MOST_CACHED = 10_000
#: Prompt of a request that only asks whether the endpoint answers.
_CONTROL = "Reply with the word OK."
#: Fields that are left out if the endpoint refuses them; of two that it names, the first.
_OPTIONAL = ("top_p", "temperature", "seed", "reasoning_effort")
#: Their values in the API where a request has none, which are not sent either.
_API_DEFAULTS = {"top_p": 1.0, "temperature": 1.0}
#: Causes of failures that another attempt may mend.
_TEMPORARY: tuple[Cause, ...] = ("connection", "timeout", "overload", "server", "reply", "empty")
#: Finish reasons of a reply that the model or a limit has ended, and of one that a filter withholds.
_ENDED = re.compile(r"stop|eos|end_turn|complete|finish|done|normal|length|limit|token|tool|function", re.IGNORECASE)
_WITHHELD = re.compile(r"filter|safety|sensitive|refus", re.IGNORECASE)
EMPTY_CURE = "no text arrives: check the server's chat template and reasoning parser, or raise max_tokens"


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of a client. Tokens and cost are of ``calls``; replies from the cache cost nothing again."""

    calls: int = 0  # answered by the endpoint
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    cached: int = 0  # answered from the cache
    failed: int = 0  # not answered after all retries


class Failure(Exception):
    """An attempt without a reply; ``parse`` raises it too, for a body that is not the expected one.

    ``again``: another attempt may help. ``wait_s`` is what the server asks for before it.
    """

    def __init__(
        self, what: str, cause: Cause = "reply", wait_s: float | None = None, said: str = "", again: bool = True
    ) -> None:
        super().__init__(what)
        self.cause, self.wait_s, self.said, self.again = cause, wait_s, said, again and cause in _TEMPORARY


class ChatModel(Protocol):
    """A model that answers one message.

    Raises ``ProviderError`` when there is no reply, ``RequestRefused`` when the endpoint does not support the
    ``response_format``, ``PromptRefused`` when it refuses this prompt alone, such as one that does not fit its context.
    """

    async def chat(
        self, prompt: str, *, system: str | None = None, temperature: float | None = None,
        max_tokens: int | None = None, seed: int | None = None, response_format: Mapping[str, Any] | None = None,
    ) -> Exchange: ...  # fmt: skip


class Server(Protocol):
    """What answers the requests of the OpenAI protocol: ``transport.Transport``, or a model in this process."""

    root: str  # distinguishes it from others

    @property
    def places(self) -> Places: ...

    async def ask(self, path: str, body: Mapping[str, Any] | None, parse: Callable[[str], T], who: str = "") -> T:
        """Ask for a reply's text, read by ``parse``; without a body, by GET. Raises as ``ChatModel`` says."""

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class _UnderWay:
    """A request that several callers may wait for; it is cancelled when none is left."""

    reply: asyncio.Future[Exchange]
    waiting: int = 0


class LLMClient(AbstractAsyncContextManager["LLMClient"]):
    """``ChatModel`` over HTTP, or over the given ``servers``. Raises ``ConfigError`` for a bad address.

    ``remarks`` are what a user should know about the endpoint; each is logged once. A field of a request that the
    endpoint refuses by name is renamed or left out from then on.
    """

    def __init__(self, config: EndpointConfig, servers: Sequence[Server] = ()) -> None:
        from llm_as_judge.llm.transport import Transport  # here: it imports aiohttp, which is slow

        self.config = config
        self.usage = Usage()
        self.remarks: list[str] = []
        #: Names that fields of a request have at this endpoint; "": not sent.
        self._names: dict[str, str] = dict.fromkeys(config.leave_out, "")
        self._cached: dict[bytes, Exchange] = {}  # by the hash of the request
        self._under_way: dict[bytes, _UnderWay] = {}
        urls = dict.fromkeys((config.base_url, *config.more_urls))
        self._servers: Sequence[Server] = servers or [
            Transport(config.model_copy(update={"base_url": url}), longest=_LONGEST_REPLY) for url in urls
        ]
        self._failed_at = {server.root: -math.inf for server in self._servers}

    async def __aexit__(self, *_: object) -> None:
        """Close the connections; a later call opens new ones."""
        for server in self._servers:
            await server.aclose()

    async def chat(
        self, prompt: str, *, system: str | None = None, temperature: float | None = None,
        max_tokens: int | None = None, seed: int | None = None, response_format: Mapping[str, Any] | None = None,
    ) -> Exchange:  # fmt: skip
        """Reply to one user message; raises as ``ChatModel`` says.

        At temperature 0 the seed is not sent: it would only make equal requests differ in the cache.
        """
        request = self._request(prompt, system, temperature, max_tokens)
        random = request["temperature"] > 0 or self._names.get("temperature") == ""
        if seed is not None and random:
            request["seed"] = seed
        if response_format is not None:
            request["response_format"] = dict(response_format)
        started = time.monotonic()
        reply = await (self._complete(request, self._servers) if random and seed is None else self._once(request))
        return replace(reply, prompt=prompt, seconds=time.monotonic() - started)

    async def _once(self, request: Mapping[str, Any]) -> Exchange:
        """Send a request once, however many callers ask, and return its reply."""
        key = hashlib.sha256(json.dumps(request).encode()).digest()

        async def fetch() -> Exchange:
            reply = self._cached[key] = await self._complete(request, self._servers)
            if len(self._cached) > _MOST_CACHED:
                del self._cached[next(iter(self._cached))]
            return reply

        self._count(cached=int(key in self._cached or key in self._under_way))
        if key in self._cached:
            return self._cached[key]
        if key not in self._under_way:
            self._under_way[key] = _UnderWay(asyncio.ensure_future(fetch()))
        under_way = self._under_way[key]
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.reply)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting:
                under_way.reply.cancel()  # no effect on a reply that is there
                self._under_way.pop(key, None)

    def load(self) -> Load:
        """Return the use of the request places so far, summed over all addresses."""
        return sum((server.places.load() for server in self._servers), Load())

    async def check(self) -> None:
        """Ask every address for one short completion, never from the cache.

        Raises ``ProviderError`` with address, model, cause and cure.
        """
        for server in self._servers:
            names = list[str]()
            try:
                names = await server.ask("/models", None, model_names, f"model {self.config.model}")
            except ProviderError as error:
                if error.cause not in ("model", "request", "reply"):  # these three: a server without that list
                    raise
            try:
                reply = await self._complete(self._request(_CONTROL), [server])
                if not reply.reply.strip():
                    what = f"an empty reply (finish_reason {reply.finish_reason}, max_tokens {self.config.max_tokens})"
                    raise ProviderError(f"{server.root} (model {self.config.model}): {what}; {EMPTY_CURE}", "empty")
            except ProviderError as error:
                if error.cause == "model" and names:
                    raise ProviderError(f"{error}; it serves {', '.join(names)}", error.cause) from error
                raise

    def _request(
        self, prompt: str, system: str | None = None, temperature: float | None = None, max_tokens: int | None = None
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

    async def _complete(self, request: Mapping[str, Any], servers: Sequence[Server]) -> Exchange:
        """Ask for one completion, and add it to ``usage``.

        A request that is refused, withheld or answered by nothing, although the same one with another prompt is
        answered, raises ``PromptRefused``: the prompt is the cause, which a workflow chooses.
        """
        try:
            reply = await self._adapted(request, servers)
        except ProviderError as error:
            self._count(failed=1)
            if self.usage.calls and self.usage.failed == 1:
                logger.warning("a request failed, later ones are only counted: %s", error)
            of_format = isinstance(error, RequestRefused) and "response_format" in error.said
            if of_format or error.cause not in ("request", "empty", "filter"):
                raise
            try:
                other = await self._adapted({**request, "messages": self._request(_CONTROL)["messages"]}, servers)
            except ProviderError:
                raise error from None
            if not other.reply.strip():
                raise
            raise PromptRefused(f"{error} (it answers other prompts)", "request") from error
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        cost = self.config.cost(prompt, completion)
        self._count(calls=1, cost=cost, prompt_tokens=prompt, completion_tokens=completion)
        return replace(reply, cost=cost)

    async def _adapted(self, request: Mapping[str, Any], servers: Sequence[Server]) -> Exchange:
        """Send a request without the fields that the endpoint refuses; they are kept once one is answered."""
        names = dict(self._names)
        while True:
            sent = {names.get(name, name): value for name, value in request.items() if value != _API_DEFAULTS.get(name)}
            sent.pop("", None)
            try:
                reply = await self._post(sent, list(servers))
            except RequestRefused as error:
                refused = [name for name in _OPTIONAL if name in sent and re.search(rf"\b{name}\b", error.said)]
                if "max_tokens" in sent and re.search(r"\bmax_completion_tokens\b", error.said):
                    names["max_tokens"] = "max_completion_tokens"
                elif refused:
                    names[refused[0]] = ""
                else:
                    raise
                continue
            for name in names.keys() - self._names.keys():
                how = f"{name} is sent as {names[name]}" if names[name] else f"{name} is left out"
                self._remark(f"the endpoint refuses the field {name}: {how}")
            self._names |= names
            return reply

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)
            logger.warning("%s (model %s): %s", self._servers[0].root, self.config.model, text)

    def _count(self, **added: float) -> None:
        self.usage = replace(self.usage, **{name: getattr(self.usage, name) + n for name, n in added.items()})

    async def _post(self, request: Mapping[str, Any], left: list[Server]) -> Exchange:
        """Post to the least busy server or, if it fails, to the next; one that failed lately comes last."""
        while True:
            now = time.monotonic()
            server = min(left, key=lambda s: (now - self._failed_at[s.root] < _AVOID_S, s.places.pressure))
            left.remove(server)
            try:
                read = partial(self._read, request)
                return await server.ask("/chat/completions", request, read, f"model {self.config.model}")
            except Failure as error:  # a server without retries
                raise ProviderError(f"{server.root}: {error}", error.cause) from error
            except ProviderError as error:
                if error.cause not in ("connection", "timeout", "overload", "server"):
                    raise
                self._failed_at[server.root] = time.monotonic()
                if not left:
                    raise

    def _read(self, request: Mapping[str, Any], text: str) -> Exchange:
        """Read a chat completion without its prompt and the reasoning; tokens without a count are estimated.

        A reply that has no text, although the model wrote some, or that a filter withheld is a failure of the endpoint.
        """
        body = parse_json(text)
        try:
            choice = body["choices"][0]
            message, finish = choice["message"], str(choice.get("finish_reason") or "stop")
            content = message.get("content") or ""
            reasoning = str(message.get("reasoning_content") or message.get("reasoning") or "")
            if isinstance(content, list):
                content = "".join(part.get("text") or "" for part in content)
            content = str(content)
            if not reasoning and content.lstrip().startswith("<think>") and "</think>" in content:
                reasoning, content = content.lstrip().removeprefix("<think>").split("</think>", 1)
            usage = body.get("usage")
            usage = usage if isinstance(usage, dict) else {}
            prompt, completion = (
                _tokens(usage.get(f"{name}_tokens") or usage.get(f"{other}_tokens"))
                for name, other in (("prompt", "input"), ("completion", "output"))
            )
            withheld = bool(_WITHHELD.search(finish)) or (not content and message.get("refusal"))
            failed = body.get("error") or choice.get("error") or not _ENDED.search(finish)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise Failure("no chat completion in the reply") from error
        if withheld or failed:
            raise Failure(f"the reply was not completed (finish_reason {finish})", "filter" if withheld else "server")
        # A model may choose to say nothing, and then writes only its end-of-text token.
        silent = not reasoning and completion and completion <= len(content) + 1
        if not content.strip() and finish != "length" and not silent:
            raise Failure(f"an empty reply (finish_reason {finish})", "empty")
        if not prompt or not completion:
            self._remark("it reports no token counts (usage): they are estimated from the texts, rather too high")
            longest = request.get("max_tokens") or request.get("max_completion_tokens") or self.config.max_tokens
            hidden = finish == "length" or (self.config.reasoning_effort and not reasoning)
            completion = completion or (longest if hidden else min(longest, _most_tokens(content + reasoning)))
            prompt = prompt or sum(_most_tokens(part["content"]) for part in request["messages"])
        kept = content.strip("\n") if reasoning else content
        return Exchange("", kept, finish, prompt, completion, cost=0.0, seconds=0.0)


def _most_tokens(text: str) -> int:
    """Bound the tokens of a message: no tokenizer makes more than there are bytes, and a template adds some."""
    return len(text.encode("utf-8", "replace")) + TEMPLATE_TOKENS


def _tokens(count: Any) -> int:
    """Read a reported number of tokens; 0 without one."""
    tokens = int(count or 0)
    if not 0 <= tokens <= _MOST_TOKENS:
        raise ValueError(f"{count} tokens")
    return tokens


def parse_json(text: str) -> dict[str, Any]:
    """Parse a body as a JSON object; raises ``Failure``."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure("the reply is not JSON") from error
    if not isinstance(body, dict):
        raise Failure("the reply is not a JSON object")
    return body


def model_names(text: str) -> list[str]:
    """Read the names in a reply to GET ``/models``."""
    data = parse_json(text).get("data")
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        raise Failure("no list of models in the reply")
    return [str(model.get("id", "")) for model in data]
