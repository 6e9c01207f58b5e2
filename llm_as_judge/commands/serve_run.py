"""``llm-as-judge serve``: an OpenAI-compatible endpoint whose model is policy, workflow and executor together.

``/v1/chat/completions`` (streaming too), ``/v1/models``, ``/health``. What a request may say stands in ``runs.chat``.
A workflow that fails answers with an empty text and the reason as ``refusal``; where the executor or the sandbox fail
the status is 502, which clients try again.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from llm_as_judge.commands.chat_run import ChatRequest, cut_at, read_request
from llm_as_judge.commands.solve_run import Solution, Solver, open_solver
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError, InfrastructureError
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
from llm_as_judge.types import DOMAINS, Domain

logger = logging.getLogger(__name__)

#: Seconds after which a waiting stream says that it is alive.
_ALIVE_S = 10.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """``domain`` is what a request is taken for that names none; ``most`` are the problems under way at once."""

    domain: Domain = "math"
    repair: bool = False
    fallback: bool = False
    most: int = 64
    api_key: str | None = None  # that requests must bear; None: none


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the endpoint is, and the name of its model."""

    base_url: str
    model: str


class Endpoint:
    """The handlers over one solver."""

    def __init__(self, solver: Solver, model: str, options: ServeOptions) -> None:
        self._solver, self._options = solver, options
        self.models = {model: options.domain, **{f"{model}:{domain}": domain for domain in DOMAINS}}
        self._under_way = 0

    def application(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_json, self._key], client_max_size=LONGEST_BODY)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/models/{name:.+}", self._model)
        app.router.add_get("/health", self._health)
        return app

    @web.middleware
    async def _key(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        key = self._options.api_key
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if key and request.path != "/health" and not hmac.compare_digest(given, key.encode()):
            raise NoKey("the API key is missing or wrong; send it as: Authorization: Bearer KEY")
        return await handler(request)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [_model(name) for name in self.models]})

    async def _model(self, http: web.Request) -> web.Response:
        name = http.match_info["name"]
        if name not in self.models:
            raise NoModel(f"no model {name[:100]!r} here; there are {', '.join(self.models)}")
        return web.json_response(_model(name))

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "models": list(self.models), "active": self._under_way})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        asked = read_request(await body_of(http), self.models)
        async with self._room(asked.n):
            if asked.stream:
                return await self._streamed(http, asked)
            solutions = await _all([self._solve(asked, i) for i in range(asked.n)])
        choices = [_choice(i, solution, asked) for i, solution in enumerate(solutions)]
        body = {**_head(asked, "chat.completion"), "choices": choices, "usage": _usage(solutions)}
        return web.json_response(body)

    @asynccontextmanager
    async def _room(self, wanted: int) -> AsyncIterator[None]:
        if self._under_way + wanted > self._options.most:
            raise Busy(f"{self._under_way} problems are under way, {self._options.most} may be; try again later")
        self._under_way += wanted
        try:
            yield
        finally:
            self._under_way -= wanted

    async def _solve(
        self, asked: ChatRequest, index: int, on_workflow: Callable[[str], None] = lambda source: None
    ) -> Solution:
        """Raises ``RequestError``."""
        draw = asked.draw if asked.draw.seed is None else replace(asked.draw, seed=asked.draw.seed + index)
        options = self._options
        try:
            return await self._solver.solve(
                asked.question, draw, repair=options.repair, fallback=options.fallback, on_workflow=on_workflow
            )
        except DataError as error:
            raise BadRequest(str(error)) from error
        except InfrastructureError as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    async def _streamed(self, http: web.Request, asked: ChatRequest) -> web.StreamResponse:
        """Server-sent events: of each choice its workflow as soon as it is written, and its answer in one piece."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(http)
        head = _head(asked, "chat.completion.chunk")
        events = asyncio.Queue[tuple[int, str | asyncio.Future[Solution]]]()

        async def send(data: object) -> None:
            await response.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())

        async def delta(index: int, part: dict[str, Any], reason: str | None = None, **more: Any) -> None:
            await send({**head, "choices": [{"index": index, "delta": part, "finish_reason": reason, **more}]})

        def heard(index: int, event: str | asyncio.Future[Solution]) -> None:
            events.put_nowait((index, event))

        tasks = [asyncio.ensure_future(self._solve(asked, i, partial(heard, i))) for i in range(asked.n)]
        for index, task in enumerate(tasks):
            task.add_done_callback(partial(heard, index))
        solutions: list[Solution] = []
        try:
            for index in range(asked.n):
                await delta(index, {"role": "assistant", "content": ""})
            while len(solutions) < asked.n:
                try:
                    index, event = await asyncio.wait_for(events.get(), _ALIVE_S)
                except asyncio.TimeoutError:
                    await response.write(b": working\n\n")
                    continue
                if isinstance(event, str):
                    await delta(index, {"reasoning_content": event})
                    continue
                solutions.append(event.result())
                choice = _choice(index, solutions[-1], asked)
                message = choice["message"]
                await delta(index, {"content": message["content"], "refusal": message["refusal"]})
                await delta(index, {}, choice["finish_reason"], workflow=choice["workflow"])
            if asked.usage:
                await send({**head, "choices": [], "usage": _usage(solutions)})
            await send("[DONE]")
        except RequestError as error:
            await send(error_body(error.status, str(error)))
        except ConnectionError:  # the client has gone
            pass
        except Exception:
            logger.exception("a stream failed")
            await send(error_body(500, "the server failed; its log says why"))
        finally:
            await _cancelled(tasks)
        return response


async def _all(work: Sequence[Coroutine[Any, Any, Solution]]) -> list[Solution]:
    """The results in order; where one fails the others are not gone on with."""
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


def _head(asked: ChatRequest, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{uuid.uuid4().hex[:16]}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": asked.model}


def _choice(index: int, solution: Solution, asked: ChatRequest) -> dict[str, Any]:
    """The answer, with the workflow where reasoning models have their thoughts."""
    execution = solution.execution
    reason = None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}"
    message = {
        "role": "assistant",
        "content": cut_at(execution.answer or "", asked.stop),
        "refusal": reason,
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


def _usage(solutions: list[Solution]) -> dict[str, Any]:
    """Tokens of the policy and of the executor together."""
    exchanges = [e for solution in solutions for call in solution.execution.calls for e in call.exchanges]
    prompt = sum(s.prompt_tokens for s in solutions) + sum(e.prompt_tokens for e in exchanges)
    completion = sum(s.completion_tokens for s in solutions) + sum(e.completion_tokens for e in exchanges)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def serve(
    config: Config,
    host: str,
    port: int,
    *,
    checkpoint: Path | None,
    options: ServeOptions,
    ready: Callable[[Serving], None] = lambda serving: None,
) -> None:
    """Serves until it is cancelled, calling ``ready`` once the address is listened on.

    Raises ``ConfigError`` where the address cannot be had, and what ``open_solver`` raises.
    """
    model = config.base_model.key
    async with open_solver(config, checkpoint) as solver:
        app = Endpoint(solver, model, options).application()
        # A client that hangs up ends its workflow.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            try:
                await site.start()
            except OSError as error:
                raise ConfigError(
                    f"cannot serve at {host}:{port}: {error.strerror}; choose another with --host and --port"
                ) from error
            ready(Serving(f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}/v1", model))
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
