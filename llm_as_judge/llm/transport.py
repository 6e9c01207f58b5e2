"""JSON over HTTP to one OpenAI-compatible server, on ``aiohttp``: for executor, judge and policy server.

Temporary failures (connection, time-out, 408, 409, 429, 5xx, a reply that cannot be read) are retried after
``Retry-After`` or a growing wait. There are limits on the requests in flight (``places``), on the size and on the total
time of a reply; errors name address, cause and cure, but no key and no password. Nothing is streamed, and redirects are
not followed: they would send prompts to another host. (The ``openai`` library takes nine times the CPU for a request.)
"""

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from llm_as_judge.config.endpoints import ServerConfig
from llm_as_judge.config.fields import is_address
from llm_as_judge.errors import Cause, ConfigError, PromptRefused, ProviderError, RequestRefused, without_key
from llm_as_judge.llm.client import EMPTY_CURE, Failure
from llm_as_judge.llm.concurrency import Places

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Default limit of a reply in bytes: sampled token ids with their log-probabilities are long.
_LONGEST_REPLY = 64 << 20
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 8.0
_LONGEST_RETRY_AFTER_S = 60.0
_RESTART_WAIT_S = 2.0
_KEPT_S = 4.0  # an idle connection: servers on uvicorn, such as vLLM, close theirs after 5
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
    "empty": EMPTY_CURE,
    "filter": "the provider's content filter or the model's refusal withholds it: use another model or filter",
    "key": "check api_key (usually the environment variable OPENAI_API_KEY)",
    "model": "check base_url (it ends in /v1) and the model's name",
    "quota": "the account has no money or quota left",
    "request": "the endpoint refuses this request: check max_tokens and model",
    "context": "shorten the prompt, lower max_tokens or serve the model with a longer context",
}


class Transport:
    """Connections of one event loop to one server, until ``aclose``.

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
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(self, path: str, body: Mapping[str, Any] | None, parse: Callable[[str], T], who: str = "") -> T:
        """Ask for a reply's text, read by ``parse``; without a body, by GET. Errors name the address and ``who``.

        Raises ``RequestRefused``, ``PromptRefused`` or, for any other cause, ``ProviderError``.
        """
        where = f"{self.root}{f' ({who})' if who else ''}"
        # Encoded with escapes: model text may contain lone surrogates.
        data = None if body is None else json.dumps(body).encode()
        given_up = time.monotonic() + self._restart_s
        while True:
            try:
                async with self.places.one():
                    return await self._reply(path, data, parse, where)
            except ProviderError as error:
                if error.cause != "connection" or not self.answered or time.monotonic() > given_up:
                    raise
                logger.info("%s; waiting for the server to come back", error)
            await asyncio.sleep(_RESTART_WAIT_S)

    async def _reply(self, path: str, data: bytes | None, parse: Callable[[str], T], where: str) -> T:
        """Send a request, again after temporary failures, at most ``max_retries`` times, and return its reply."""
        attempt = 0
        while True:
            attempt += 1
            begun = time.monotonic()
            try:
                return await self._attempt(path, data, parse)
            except Failure as failure:
                if failure.cause in ("overload", "timeout"):
                    self.places.overloaded(begun)
                if not failure.again or attempt > self.config.max_retries:
                    kind = {"request": RequestRefused, "context": PromptRefused}.get(failure.cause, ProviderError)
                    tries = f" (after {attempt} attempts)" if attempt > 1 else ""
                    cure = _CURES[failure.cause]
                    raise kind(f"{where}: {failure}{tries}; {cure}", failure.cause, failure.said) from failure.__cause__
                growing = min(_BACKOFF_S * 2 ** (attempt - 1), _LONGEST_BACKOFF_S) * random.uniform(0.75, 1)
                wait = growing if failure.wait_s is None else failure.wait_s
            await asyncio.sleep(wait)

    async def _attempt(self, path: str, data: bytes | None, parse: Callable[[str], T]) -> T:
        method, body = "GET" if data is None else "POST", bytearray()
        try:
            request = self._connected().request(method, self.root + path, data=data, allow_redirects=False)
            async with request as response:
                async for chunk in response.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > self._longest:
                        raise Failure(f"the reply has more than {self._longest:,} bytes", again=False)
        except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
            raise Failure(f"no reply within timeout_s = {self.config.timeout_s:g} s", "timeout") from error
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            raise Failure(f"no connection ({self._quote(str(error))})", "connection") from error
        except aiohttp.ClientError as error:
            what = f"the reply broke off ({type(error).__name__}: {self._quote(str(error))})"
            raise Failure(what, "connection") from error
        if not 200 <= response.status < 300:
            said, target = _text(body), response.headers.get("Location") if response.status < 400 else None
            cause = _cause(response.status, said)
            what = f"HTTP {response.status}: {self._quote(f'redirects to {target}' if target else said)}"
            raise Failure(what, cause, _asked(response.headers.get("Retry-After", ""), self.config.timeout_s), said)
        self.places.answered()
        self.answered = True
        try:
            return parse(body.decode())
        except (Failure, UnicodeDecodeError) as error:
            cause = error.cause if isinstance(error, Failure) else "reply"
            raise Failure(f"{error}: {self._quote(_text(body))}", cause) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            key = self.config.api_key or "none"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S),  # ``places`` limits
                timeout=aiohttp.ClientTimeout(total=self.config.timeout_s),
                headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy(self.root),
            )
        return self._session

    def _quote(self, text: str) -> str:
        """Quote a text's beginning without what looks like a key or a password: providers repeat what they refuse."""
        text = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
        text = _KEYS.sub("***", _without_login(without_key(text, self.config.api_key)))
        return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."


def _root(base_url: str) -> str:
    """Return the address without a trailing slash; ``/v1`` is added when it has no path."""
    address = urlsplit(base_url)
    if not address.hostname or "@" in address.netloc or address.query or address.fragment:
        wrong = _without_login(base_url)
        cure = "" if base_url else ": set that of the executor or judge, or OPENAI_BASE_URL"
        raise ConfigError(
            f"base_url must look like http://host:port/v1, the key goes into api_key; got {wrong!r}{cure}"
        )
    return base_url.rstrip("/") + ("" if address.path.strip("/") else "/v1")


def _proxy(root: str) -> str | None:
    """Find the proxy that the environment sets for an address. (``trust_env`` of aiohttp reads neither ALL_PROXY nor
    ports in NO_PROXY, and takes keys from ~/.netrc.)
    """
    address, proxies = urlsplit(root), getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or address.hostname in _LOCAL or any(map(proxy_bypass, (address.hostname or "", address.netloc))):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")) or not is_address(proxy):
        cure = "mend HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or add the host to NO_PROXY"
        raise ConfigError(f"{root}: a proxy must look like http://host:port, got {_without_login(proxy)!r}; {cure}")
    return proxy


def _without_login(url: str) -> str:
    """Return ``url``, or a text with some, without passwords and without queries, which may hold keys."""
    return re.sub(r"(//[^\s?#\"']*)[?#][^\s\"']*", r"\1?***", re.sub(r"//[^/\s]*@", "//***@", url))


def _asked(retry_after: str, timeout_s: float) -> float | None:
    """Return up to twice the seconds that a server asks to wait, so that refused requests do not all come back at once.

    Not more than a request may take.
    """
    dated = re.search("[A-Za-z]", retry_after)
    try:
        seconds = parsedate_to_datetime(retry_after).timestamp() - time.time() if dated else float(retry_after)
    except (ValueError, OverflowError):
        return None
    return min(min(seconds, _LONGEST_RETRY_AFTER_S) * random.uniform(1, 2), timeout_s) if seconds > 0 else None


def _text(body: bytes | bytearray) -> str:
    return body[:_ERROR_BYTES].decode("utf-8", "replace")


def _cause(status: int, text: str) -> Cause:
    if status == 429 and _QUOTA.search(text):
        return "quota"
    known: dict[int, Cause] = {
        401: "key", 403: "key", 402: "quota", 404: "model", 408: "timeout", 409: "overload", 413: "context",
        429: "overload",
    }  # fmt: skip
    if status < 400:
        return "model"  # a redirect: another address
    return known.get(status, "server" if status >= 500 else "context" if _CONTEXT.search(text) else "request")
