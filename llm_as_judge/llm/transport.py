"""JSON over HTTP to one server of the OpenAI protocol: the one way to executor, judge and policy server.

At most ``concurrency`` requests are in flight, fewer where the server is overloaded (``places``). Failures that may
pass (connection, time-out, 408, 409, 429, 5xx, an unreadable body) are retried with jittered backoff, or after the
``Retry-After`` asked for; the others raise at once.
Every ``ProviderError`` names address, what happened, cause and cure, and no key. Nothing is streamed. The ``openai``
package would cost 0.9 ms more CPU a call (``benchmarks/client.py``) and has no time limit on a whole reply.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from llm_as_judge.config.schema import ServerConfig
from llm_as_judge.errors import Cause, ConfigError, PromptTooLong, ProviderError, RequestRefused
from llm_as_judge.llm.places import Places

logger = logging.getLogger(__name__)

T = TypeVar("T")
Body = Mapping[str, Any]

_LONGEST_WAIT_S = 60.0
_RESTART_WAIT_S = 2.0
_QUOTED_CHARS = 300
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
    """Raised by ``parse`` for a body that is not the reply asked for; the request is sent again."""


class _MayPass(Exception):
    """A failure to be retried; ``wait_s`` is what the server asked for."""

    def __init__(self, message: str, cause: Cause, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.wait_s = wait_s


class Transport:
    """Connections of one event loop to one server; open with ``async with``, or ``aclose`` it.

    ``backoff_s`` is the mean first wait before a retry; it doubles every time. A server that has ``answered`` before
    and refuses connections now is taken to be restarting: for ``restart_s`` waiting for it costs no retry.
    """

    def __init__(
        self, config: ServerConfig, *, backoff_s: float = 0.5, restart_s: float = 0.0, answered: bool = False
    ) -> None:
        if not (config.api_key.isascii() and config.api_key.isprintable()):
            raise ConfigError("api_key holds characters that a key cannot have (a line break, an accent?)")
        self.config = config
        self.root = _root(config.base_url)
        self.answered = answered
        self._backoff_s = backoff_s
        self._restart_s = restart_s
        self._session: aiohttp.ClientSession | None = None
        self.places = Places(config.concurrency)

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, path: str, body: Body, parse: Callable[[str], T], who: str = "") -> T:
        """What ``parse`` makes of the reply's text. ``who`` is named in errors beside the address.

        Raises ``RequestRefused``, ``PromptTooLong`` or, with any other cause, ``ProviderError``.
        """
        return await self._ask("POST", path, body, parse, who)

    async def get(self, path: str, parse: Callable[[str], T], who: str = "") -> T:
        return await self._ask("GET", path, None, parse, who)

    async def _ask(self, method: str, path: str, body: Body | None, parse: Callable[[str], T], who: str) -> T:
        retries, given_up = 0, time.monotonic() + self._restart_s
        where = f"{self.root}{f' ({who})' if who else ''}"
        while True:
            try:
                async with self.places.one() as begun:
                    text = await self._send(method, path, body, where)
                self.answered = True
                self.places.answered()
                return parse(text)
            except Unreadable as error:
                failure = _MayPass(f"{error}: {self._quote(text)}", "reply")
            except _MayPass as error:
                failure = error
                if failure.cause in ("overload", "timeout") and self.places.overloaded(begun):
                    logger.info("%s: %s; %d requests at once from now on", where, failure, self.places.width)
            restarting = failure.cause == "connection" and self.answered and time.monotonic() < given_up
            if retries == self.config.max_retries and not restarting:
                tries = f" (after {retries + 1} attempts)" if retries else ""
                raise ProviderError(f"{where}: {failure}{tries}; {_CURES[failure.cause]}", failure.cause) from failure
            wait = self._backoff_s * 2**retries * random.uniform(0.5, 1.5)
            wait = min(max(wait, failure.wait_s), _LONGEST_WAIT_S)
            logger.info("%s: %s; next attempt in %.1f s", where, failure, wait)
            await asyncio.sleep(min(wait, _RESTART_WAIT_S) if restarting else wait)
            retries += not restarting

    async def _send(self, method: str, path: str, body: Body | None, where: str) -> str:
        """One exchange: the reply's text, or ``_MayPass``, or ``ProviderError``."""
        try:
            async with self._connected().request(method, self.root + path, json=body) as response:
                status, wait, text = response.status, response.headers.get("Retry-After"), await response.text()
        except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
            raise _MayPass(f"no reply within timeout_s = {self.config.timeout_s:g} s", "timeout") from error
        except aiohttp.ClientConnectorError as error:
            raise _MayPass(f"no connection ({error})", "connection") from error
        except (aiohttp.ClientError, UnicodeDecodeError) as error:
            raise _MayPass(f"the reply broke off ({type(error).__name__}: {error})", "connection") from error
        if status < 400:
            return text
        cause, what = _cause(status, text), f"HTTP {status}: {self._quote(text)}"
        if cause in ("timeout", "overload", "server"):
            raise _MayPass(what, cause, _seconds(wait))
        kind = {"request": RequestRefused, "context": PromptTooLong}.get(cause, ProviderError)
        raise kind(f"{where}: {what}; {_CURES[cause]}", cause)

    def _connected(self) -> aiohttp.ClientSession:
        config = self.config
        if self._session is None or self._session.closed:
            direct = urlsplit(self.root).hostname in [host.strip() for host in config.no_proxy.split(",")]
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {config.api_key}"} if config.api_key else {},
                timeout=aiohttp.ClientTimeout(total=config.timeout_s),
                connector=aiohttp.TCPConnector(limit=0),  # the places are the limit
                trust_env=not direct,
            )
        return self._session

    def _quote(self, text: str) -> str:
        """The beginning of a body, without what looks like a key: providers repeat the one they refuse."""
        text = " ".join(text[: 10 * _QUOTED_CHARS].split())
        if len(self.config.api_key) >= 4:
            text = text.replace(self.config.api_key, "***")
        text = _KEYS.sub("***", text)
        return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."


def _root(base_url: str) -> str:
    """The address without a slash at its end; one without a path gets ``/v1``."""
    address = urlsplit(base_url)
    if not address.hostname or "@" in address.netloc:
        shown = re.sub(r"//[^/]*@", "//***@", base_url)
        raise ConfigError(f"base_url must look like http://host:port/v1, the key goes into api_key; got {shown!r}")
    return base_url.rstrip("/") + ("" if address.path.strip("/") else "/v1")


def _cause(status: int, text: str) -> Cause:
    if status in (401, 403):
        return "key"
    if status == 402 or (status == 429 and _QUOTA.search(text)):
        return "quota"
    if status == 404:
        return "model"
    if status in (408, 409, 429) or status >= 500:
        return "timeout" if status == 408 else "server" if status >= 500 else "overload"
    return "context" if status == 413 or _CONTEXT.search(text) else "request"


def _seconds(retry_after: str | None) -> float:
    """``Retry-After`` in seconds, given as a number or as an HTTP date; 0 where there is none."""
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after or "").timestamp() - time.time())
    except ValueError:
        return 0.0


def parse_json(text: str) -> dict[str, Any]:
    """The JSON object that a body is; raises ``Unreadable``."""
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
