"""The server's side of the OpenAI protocol: reading requests, the frame of replies, reporting errors.

Used by both servers of the package, the nano executor and ``llm-as-judge serve``.
"""

import json
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

from aiohttp import web
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from llm_as_judge.errors import ConfigError

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Maximum size of a request in bytes.
LONGEST_BODY = 1 << 20


class RequestError(Exception):
    """A request that gets no answer, with the HTTP status: 400 for a wrong one, 401 for a missing or wrong key, 404 for
    an unknown model, 429 at the maximum number of requests, 502 if a model or service behind the server fails.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeError:
        raise ValueError("the text has invalid characters (lone surrogates)") from None
    return text


Unicode = Annotated[str, AfterValidator(_unicode)]


class Text(BaseModel):
    type: Literal["text"]
    text: Unicode = ""


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Text], BeforeValidator(_parts)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


class Body(BaseModel):
    """The fields of a chat request that both servers check; unknown ones are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    model: str
    messages: list[Message] = Field(min_length=1)
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, ge=1e-6, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(None, ge=1, le=1 << 31)
    max_completion_tokens: int | None = Field(None, ge=1, le=1 << 31)
    response_format: Text | None = None


B = TypeVar("B", bound=Body)


def checked(body: Mapping[str, Any], kind: type[B], models: Iterable[str], unsupported: Iterable[str]) -> B:
    """Read ``body`` as ``kind``. Raises ``RequestError`` for wrong fields, another model and ``unsupported`` fields."""
    if refused := [name for name in unsupported if body.get(name) and body[name] != "none"]:
        raise RequestError(f"{', '.join(refused)}: not supported by this server")
    if body.get("model") not in [*models]:
        raise RequestError(f"no model {body.get('model')!r:.100} here; use one of {', '.join(models)}", 404)
    try:
        return kind.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise RequestError(f"{place}: {reason}, got {first['input']!r:.100}") from error


async def body_of(http: web.Request) -> dict[str, Any]:
    """Read the request's JSON object; raises ``RequestError``."""
    try:
        body = json.loads((await http.read()).decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}"[:300]) from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def application(chat: Handler, models: Iterable[str], active: Callable[[], int], *more: Any) -> web.Application:
    """Build the routes that both servers have; ``active`` counts requests in progress, ``more`` are middlewares."""
    names = list(models)
    known = [{"id": name, "object": "model", "created": 0, "owned_by": "llm-as-judge"} for name in names]

    async def list_models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": known})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "models": names, "active": active()})

    app = web.Application(middlewares=[errors_as_json, *more], client_max_size=LONGEST_BODY)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", list_models)
    app.router.add_get("/health", health)
    return app


@contextmanager
def bound(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Bind a socket to the address (port 0: any free port), without listening yet; gives it and the URL of the API.

    Raises ``ConfigError`` for an address that cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not the name of a host"
        cure = "choose another address with --host and --port"
        raise ConfigError(f"cannot serve at {host}:{port}: {reason}; {cure}") from error
    with sock:
        yield sock, f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}/v1"


def reply(model: str, choices: Sequence[Mapping[str, Any]], prompt: int, completion: int) -> web.Response:
    """Build a whole reply, with its numbers of tokens."""
    return web.json_response({**reply_head(model), "choices": choices, "usage": usage_of(prompt, completion)})


def reply_head(model: str, kind: str = "chat.completion") -> dict[str, Any]:
    """Return the fields that a reply and each part of a stream begin with."""
    return {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": kind, "created": int(time.time()), "model": model}


def usage_of(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Write an error in the protocol's format."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "code": status}}


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Report every failure before the response has begun in the protocol's format."""
    try:
        return await handler(request)
    except RequestError as error:
        status, message = error.status, str(error)
    except web.HTTPException as error:  # unknown path, wrong method, body too large
        status, message = error.status, f"{error.reason}: {request.method} {request.path[:100]}"
    except Exception:
        logger.exception("a request failed")
        status, message = 500, "the server failed; its log says why"
    return web.json_response(error_body(status, message), status=status)
