"""OpenAI-compatible HTTP handlers of ``llm-as-judge serve`` over one ``Solver``.

``/v1/chat/completions`` (also streaming), ``/v1/models`` and ``/health``. If a workflow fails, the answer is empty and
``refusal`` has the reason; if the executor or the sandbox fails, the status is 502, which clients retry.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from llm_as_judge.commands.serve import ServeOptions
from llm_as_judge.commands.serve_chat import ChatRequest, cut_at, read_request
from llm_as_judge.errors import DataError, InfrastructureError
from llm_as_judge.llm.protocol import (
    LONGEST_BODY,
    BadRequest,
    Busy,
    NoKey,
    NoModel,
    RequestError,
    Unavailable,
    body_of,
    error_body,
    errors_as_json,
)
from llm_as_judge.solver import Solution, Solver
from llm_as_judge.types import DOMAINS

logger = logging.getLogger(__name__)

#: Seconds between comments that keep a waiting stream open.
_ALIVE_S = 10.0


class Endpoint:
    def __init__(self, solver: Solver, model: str, options: ServeOptions) -> None:
        self._solver, self._options = solver, options
        self.models = {model: options.domain, **{f"{model}:{domain}": domain for domain in DOMAINS}}
        self._active = 0

    def application(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_json, self._check_key], client_max_size=LONGEST_BODY)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/models/{name:.+}", self._model)
        app.router.add_get("/health", self._health)
        return app

    @web.middleware
    async def _check_key(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        key = self._options.api_key
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if key is not None and request.path != "/health" and not hmac.compare_digest(given, key.encode()):
            raise NoKey("the API key is missing or wrong; send it as: Authorization: Bearer KEY")
        return await handler(request)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [_model(name) for name in self.models]})

    async def _model(self, http: web.Request) -> web.Response:
        name = http.match_info["name"]
        if name not in self.models:
            raise NoModel(f"no model {name[:100]!r} here; use one of {', '.join(self.models)}")
        return web.json_response(_model(name))

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "models": list(self.models), "active": self._active})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        request = read_request(await body_of(http), self.models)
        async with self._reserved(request.n):
            if request.stream:
                return await self._stream(http, request)
            solutions = await _all([self._solve(request, i) for i in range(request.n)])
        choices = [_choice(i, solution, request) for i, solution in enumerate(solutions)]
        return web.json_response({**_head(request, "chat.completion"), "choices": choices, "usage": _usage(solutions)})

    @asynccontextmanager
    async def _reserved(self, count: int) -> AsyncIterator[None]:
        if self._active + count > self._options.max_requests:
            raise Busy(f"{self._active} of at most {self._options.max_requests} problems in progress; try again later")
        self._active += count
        try:
            yield
        finally:
            self._active -= count

    async def _solve(
        self, request: ChatRequest, index: int, on_workflow: Callable[[str], None] = lambda source: None
    ) -> Solution:
        """Raises ``RequestError``."""
        draw = request.draw if request.draw.seed is None else replace(request.draw, seed=request.draw.seed + index)
        options = self._options
        try:
            return await self._solver.answer(
                request.question, draw, repair=options.repair, fallback=options.fallback, on_workflow=on_workflow
            )
        except DataError as error:
            raise BadRequest(str(error)) from error
        except InfrastructureError as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    async def _stream(self, http: web.Request, request: ChatRequest) -> web.StreamResponse:
        """Server-sent events: each choice's workflow as soon as it is written, then its answer in one piece."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(http)
        head = _head(request, "chat.completion.chunk")
        events = asyncio.Queue[tuple[int, str | asyncio.Future[Solution]]]()

        async def send(data: object) -> None:
            await response.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())

        async def delta(index: int, part: dict[str, Any], reason: str | None = None, **more: Any) -> None:
            await send({**head, "choices": [{"index": index, "delta": part, "finish_reason": reason, **more}]})

        def received(index: int, event: str | asyncio.Future[Solution]) -> None:
            events.put_nowait((index, event))

        tasks = [asyncio.ensure_future(self._solve(request, i, partial(received, i))) for i in range(request.n)]
        for index, task in enumerate(tasks):
            task.add_done_callback(partial(received, index))
        solutions: list[Solution] = []
        try:
            for index in range(request.n):
                await delta(index, {"role": "assistant", "content": ""})
            while len(solutions) < request.n:
                try:
                    index, event = await asyncio.wait_for(events.get(), _ALIVE_S)
                except asyncio.TimeoutError:
                    await response.write(b": working\n\n")
                    continue
                if isinstance(event, str):
                    await delta(index, {"reasoning_content": event})
                    continue
                solutions.append(event.result())
                choice = _choice(index, solutions[-1], request)
                await delta(index, {name: choice["message"][name] for name in ("content", "refusal")})
                await delta(index, {}, choice["finish_reason"], workflow=choice["workflow"])
            if request.usage:
                await send({**head, "choices": [], "usage": _usage(solutions)})
            await send("[DONE]")
        except RequestError as error:
            await send(error_body(error.status, str(error)))
        except ConnectionError:  # the client has disconnected
            pass
        except Exception:
            logger.exception("a stream failed")
            await send(error_body(500, "the server failed; its log says why"))
        finally:
            await _cancelled(tasks)
        return response


async def _all(work: Sequence[Coroutine[Any, Any, Solution]]) -> list[Solution]:
    """The results in order; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _cancelled(tasks)


async def _cancelled(tasks: Sequence[asyncio.Future[Solution]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "llm-as-judge"}


def _head(request: ChatRequest, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{uuid.uuid4().hex[:16]}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": request.model}


def _choice(index: int, solution: Solution, request: ChatRequest) -> dict[str, Any]:
    """The answer, with the workflow in the field where reasoning models have their reasoning."""
    execution = solution.execution
    message = {
        "role": "assistant",
        "content": cut_at(execution.answer or "", request.stop),
        "refusal": None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}",
        "reasoning_content": solution.workflow,
    }
    workflow = {
        "outcome": execution.outcome,
        "operators": [call.name for call in execution.calls],
        "repaired": solution.repaired,
        "fallback": solution.fallback,
        "executor_tokens": execution.tokens,
        "cost": execution.cost,
    }
    return {"index": index, "message": message, "finish_reason": "stop", "logprobs": None, "workflow": workflow}


def _usage(solutions: Sequence[Solution]) -> dict[str, Any]:
    """Tokens of policy and executor together."""
    prompt, completion = map(sum, zip(*(solution.tokens() for solution in solutions), strict=True))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
