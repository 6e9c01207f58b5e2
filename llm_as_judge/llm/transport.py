"""JSON over HTTP to one OpenAI-compatible server, on ``openai.AsyncOpenAI``: for executor, judge and policy server.

The library retries temporary failures (connection, time-out, 408, 409, 429, 5xx; it respects ``Retry-After``) and reads
the proxy settings. Added here: a limit on the requests in flight (``places``), on the size and on the total time of a
reply, another attempt when a reply cannot be read, and errors that name address, cause and cure, but no key. Nothing is
streamed. Importing ``openai`` takes half a second: import this module only where a client is opened.
"""

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import openai

from llm_as_judge.config.endpoints import ServerConfig
from llm_as_judge.errors import Cause, ConfigError, PromptTooLong, ProviderError, RequestRefused
from llm_as_judge.llm.places import Places

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Default limit of a reply in bytes: sampled token ids with their log-probabilities are long.
_LONGEST_REPLY = 64 << 20
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 8.0
_RESTART_WAIT_S = 2.0
_LOCAL = ("127.0.0.1", "localhost", "::1")  # hosts that are reached without a proxy
_QUOTED_CHARS = 300
_ERROR_BYTES = 10_000  # that are read of an error
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai|hf|key)[-_][\w*.-]{6,}|(?i:\bbearer\s+)[\w*.+/=-]+")
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_CONTEXT = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:model|context|input|prompt) length|(?:prompt|input) is too long"
    r"|this model reads at most|input token count|too many (?:input )?tokens",
    re.IGNORECASE,
)
_CURES: dict[Cause, str] = {
    "connection": "is the server running there?",
    "timeout": "raise timeout_s or lower concurrency",
    "overload": "lower concurrency or raise max_retries",
    "server": "see the server's own log",
    "reply": "is this a server of the OpenAI protocol?",
    "key": "check api_key (usually the environment variable OPENAI_API_KEY)",
    "model": "check base_url (it ends in /v1) and the model's name",
    "quota": "the account has no money or quota left",
    "request": "the endpoint refuses this request: check max_tokens and model",
    "context": "shorten the prompt, lower max_tokens or serve the model with a longer context",
}


class Unreadable(Exception):
    """Raised by ``parse`` for a body that is not the expected reply; the request is sent again."""


class _TooLong(httpx2.RequestError):
    """The reply exceeds the limit on its size."""


class _BoundedClient(httpx2.AsyncClient):
    """HTTP client that limits the total time and the size of a reply; httpx limits only the time between two chunks.

    It sees every attempt of the library, and tells ``places`` which of them overloaded the server.
    """

    def __init__(self, places: Places, timeout_s: float, longest: int, **options: Any) -> None:
        super().__init__(timeout=timeout_s, follow_redirects=True, **options)
        self._places, self._timeout_s, self._longest = places, timeout_s, longest

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        begun = time.monotonic()
        try:
            response = await asyncio.wait_for(self._read(request, options), self._timeout_s)
        except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
            self._places.overloaded(begun)
            raise httpx2.ReadTimeout("total time", request=request) from error
        if response.status_code == 429:
            self._places.overloaded(begun)
        elif response.is_success:
            self._places.answered()
        return response

    async def _read(self, request: httpx2.Request, options: Mapping[str, Any]) -> httpx2.Response:
        response = await super().send(request, **{**options, "stream": True})
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes(1 << 16):
                body += chunk
                if len(body) > self._longest:
                    raise _TooLong(f"the reply has more than {self._longest:,} bytes", request=request)
        finally:
            await response.aclose()
        # A new response without the headers that say how to decode the body: it is decoded already, and is UTF-8.
        headers = {}
        if retry_after := response.headers.get("retry-after"):
            headers["retry-after"] = _spread(retry_after)
        if response.status_code == 429 and _QUOTA.search(_text(body)):
            headers["x-should-retry"] = "false"
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)


class Transport:
    """Connections of one event loop to one server; open with ``async with``, or close with ``aclose``.

    A server that has ``answered`` before and refuses connections now is taken to be restarting: waiting for it, at most
    ``restart_s`` seconds, costs no retry. ``longest`` limits a reply in bytes.
    """

    def __init__(
        self, config: ServerConfig, *, restart_s: float = 0.0, answered: bool = False, longest: int = _LONGEST_REPLY
    ) -> None:
        if not (config.api_key.isascii() and config.api_key.isprintable()):
            raise ConfigError("api_key contains characters that a key cannot have (a line break, an accent?)")
        self.config = config
        self.root = _root(config.base_url)
        self.answered = answered
        self.places = Places(config.concurrency)
        self._restart_s, self._longest = restart_s, longest
        self._client: openai.AsyncOpenAI | None = None

    async def __aenter__(self) -> "Transport":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def get(self, path: str, parse: Callable[[str], T], who: str = "") -> T:
        return await self.post(path, None, parse, who)

    async def post(self, path: str, body: Mapping[str, Any] | None, parse: Callable[[str], T], who: str = "") -> T:
        """The reply's text as read by ``parse``. Errors name the address and ``who``.

        Raises ``RequestRefused``, ``PromptTooLong`` or, for any other cause, ``ProviderError``.
        """
        where = f"{self.root}{f' ({who})' if who else ''}"
        unreadable, given_up = 0, time.monotonic() + self._restart_s
        while True:
            try:
                async with self.places.one():
                    reply = await self._send(path, body, where)
                self.answered = True
                return parse(reply.decode())
            except (Unreadable, UnicodeDecodeError) as error:
                unreadable += 1
                if unreadable > self.config.max_retries:
                    raise self._error(where, f"{error}: {self._quote(reply)}", "reply", unreadable) from error
                wait = min(_BACKOFF_S * 2 ** (unreadable - 1), _LONGEST_BACKOFF_S) * random.uniform(0.75, 1)
            except ProviderError as error:
                if error.cause != "connection" or not self.answered or time.monotonic() > given_up:
                    raise
                logger.info("%s; waiting for the server to come back", error)
                wait = _RESTART_WAIT_S
            await asyncio.sleep(wait)

    async def _send(self, path: str, body: Mapping[str, Any] | None, where: str) -> bytes:
        """The body of one reply, after the library's retries."""
        client = self._connected()
        try:
            if body is None:
                response = await client.get(path, cast_to=httpx2.Response)
            else:  # serialised here: the library cannot encode lone surrogates
                response = await client.post(path, cast_to=httpx2.Response, content=json.dumps(body).encode())
            return response.content
        except openai.APITimeoutError as error:
            what = f"no reply within timeout_s = {self.config.timeout_s:g} s"
            raise self._error(where, what, "timeout", _attempts(error)) from error
        except openai.APIConnectionError as error:
            reason = error.__cause__
            if isinstance(reason, _TooLong):
                raise self._error(where, str(reason), "reply", _attempts(error)) from error
            refused = isinstance(reason, httpx2.ConnectError)
            what = (
                f"no connection ({reason})" if refused else f"the reply broke off ({type(reason).__name__}: {reason})"
            )
            raise self._error(where, what, "connection", _attempts(error)) from error
        except openai.APIStatusError as error:
            content = error.response.content
            what = f"HTTP {error.status_code}: {self._quote(content)}"
            cause = _cause(error.status_code, _text(content))
            raise self._error(where, what, cause, _attempts(error)) from error

    def _error(self, where: str, what: str, cause: Cause, attempts: int) -> ProviderError:
        kind = {"request": RequestRefused, "context": PromptTooLong}.get(cause, ProviderError)
        tries = f" (after {attempts} attempts)" if attempts > 1 else ""
        return kind(f"{where}: {what}{tries}; {_CURES[cause]}", cause)

    def _connected(self) -> openai.AsyncOpenAI:
        if self._client is None:
            config = self.config
            try:
                http = _BoundedClient(
                    self.places,
                    config.timeout_s,
                    self._longest,
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=config.concurrency),
                    trust_env=urlsplit(self.root).hostname not in _LOCAL,
                )
            except (ImportError, ValueError, httpx2.InvalidURL) as error:
                cure = "mend HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or add the host to NO_PROXY"
                raise ConfigError(f"{self.root}: the proxy settings cannot be used: {error}; {cure}") from error
            self._client = openai.AsyncOpenAI(
                base_url=self.root,
                api_key=config.api_key or "none",  # the library refuses an empty one
                max_retries=config.max_retries,
                timeout=config.timeout_s,
                http_client=http,
            )
        return self._client

    def _quote(self, body: bytes) -> str:
        """The beginning of a body, without what looks like a key: providers repeat the one they refuse."""
        text = " ".join(_text(body).split())
        if len(self.config.api_key) >= 4:
            text = text.replace(self.config.api_key, "***")
        text = _KEYS.sub("***", text)
        return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."


def _root(base_url: str) -> str:
    """The address without a trailing slash; ``/v1`` is added when it has no path."""
    address = urlsplit(base_url)
    if not address.hostname or "@" in address.netloc:
        shown = re.sub(r"//[^/]*@", "//***@", base_url)
        raise ConfigError(f"base_url must look like http://host:port/v1, the key goes into api_key; got {shown!r}")
    return base_url.rstrip("/") + ("" if address.path.strip("/") else "/v1")


def _spread(retry_after: str) -> str:
    """Up to twice the seconds asked for, so that refused requests do not all come back at once."""
    try:
        return str(float(retry_after) * random.uniform(1, 2))
    except ValueError:  # a date
        return retry_after


def _text(body: bytes | bytearray) -> str:
    return body[:_ERROR_BYTES].decode("utf-8", "replace")


def _attempts(error: openai.APIConnectionError | openai.APIStatusError) -> int:
    return 1 + int(error.request.headers.get("x-stainless-retry-count", 0))


def _cause(status: int, text: str) -> Cause:
    if status == 429 and _QUOTA.search(text):
        return "quota"
    known: dict[int, Cause] = {
        401: "key", 403: "key", 402: "quota", 404: "model", 408: "timeout", 409: "overload", 413: "context",
        429: "overload",
    }  # fmt: skip
    usual: Cause = "server" if status >= 500 else "context" if _CONTEXT.search(text) else "request"
    return known.get(status, usual)


def parse_json(text: str) -> dict[str, Any]:
    """A body as a JSON object; raises ``Unreadable``."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("the reply is not JSON") from error
    if not isinstance(body, dict):
        raise Unreadable("the reply is not a JSON object")
    return body


def model_names(text: str) -> list[str]:
    """The names in a reply to GET ``/models``."""
    data = parse_json(text).get("data")
    if not isinstance(data, list) or not all(isinstance(model, dict) for model in data):
        raise Unreadable("no list of models in the reply")
    return [str(model.get("id", "")) for model in data]
