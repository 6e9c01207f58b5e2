"""The server's side of the OpenAI protocol: reading requests and reporting errors.

Used by both servers of the package, the nano executor and ``llm-as-judge serve``.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

logger = logging.getLogger(__name__)

#: Maximum size of a request in bytes.
LONGEST_BODY = 1 << 20


class RequestError(Exception):
    """A request that gets no answer; ``status`` is the HTTP status."""

    status = 400


class BadRequest(RequestError):
    """The request is wrong."""


class NoKey(RequestError):
    """The client's API key is missing or wrong."""

    status = 401


class NoModel(RequestError):
    """There is no model of that name."""

    status = 404


class Busy(RequestError):
    """The maximum number of requests is under way."""

    status = 429


class Unavailable(RequestError):
    """A model or service behind this one failed."""

    status = 502


def number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """The number ``body[name]`` in [low, high], or ``default``; raises ``BadRequest``."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}, got {shown(value)}")
    return float(value)


def seed_of(body: Mapping[str, Any]) -> int | None:
    """The 64-bit seed, or None; raises ``BadRequest``."""
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63):
        raise BadRequest(f"seed must be an integer of 64 bits, got {shown(seed)}")
    return seed


def shown(value: object) -> str:
    """The beginning of a value, for a message."""
    try:
        return repr(value)[:100]
    except ValueError:  # an integer of thousands of digits
        return type(value).__name__


async def body_of(http: web.Request) -> dict[str, Any]:
    """The request's JSON object; raises ``BadRequest``."""
    try:
        body = json.loads((await http.read()).decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}"[:300]) from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error in the protocol's format."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "code": status}}


def error_response(status: int, message: str) -> web.Response:
    return web.json_response(error_body(status, message), status=status)


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Report every failure before the response has begun in the protocol's format."""
    try:
        return await handler(request)
    except RequestError as error:
        return error_response(error.status, str(error))
    except web.HTTPException as error:  # unknown path, wrong method, body too large
        return error_response(error.status, f"{error.reason}: {request.method} {request.path[:100]}")
    except Exception:
        logger.exception("a request failed")
        return error_response(500, "the server failed; its log says why")
