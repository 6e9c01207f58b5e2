"""OpenAI-compatible HTTP handlers of ``llm-as-judge serve`` over one ``Solver``.

``/v1/chat/completions`` (also streaming), ``/v1/models`` and ``/health``. If a workflow fails, the answer is empty and
``refusal`` has the reason; if the executor or the sandbox fails, the status is 502, which clients retry.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from llm_as_judge.commands.serve_chat import ChatBody, cut_at, read_request
from llm_as_judge.errors import DataError, InfrastructureError
from llm_as_judge.evaluation.evaluate import all_of
from llm_as_judge.llm import protocol
from llm_as_judge.llm.protocol import Handler, RequestError, body_of, error_body, reply_head
from llm_as_judge.solver import Draw, Solution, Solver
from llm_as_judge.types import Domain, Question

logger = logging.getLogger(__name__)

#: Seconds between comments that keep a waiting stream open.
_ALIVE_S = 10.0


async def run_server(
    endpoint: "Endpoint", host: str, port: int, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until cancelled; ``ready`` gets the address once the port is open. Raises ``ConfigError`` for an address
    that cannot be used, before models are loaded.
    """
    with protocol.bound(host, port) as (sock, address):
        async with endpoint.solver:
            # A client that disconnects cancels its workflow.
            runner = web.AppRunner(endpoint.app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
            await runner.setup()
            try:
                await web.SockSite(runner, sock).start()
                ready(address)
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()


@dataclass
class Endpoint:
    solver: Solver
    domain: Domain = "math"  # of requests without one
    fallback: bool = False
    max_requests: int = 64  # problems in progress at once
    api_key: str | None = None  # that clients must send; None: none needed
    active: int = 0

    def __post_init__(self) -> None:
        model, self._data = self.solver.config.base_model.key, self.solver.config.data
        self.models = {model: self.domain, **{f"{model}:{domain}": domain for domain in self._data.domain_ratios}}
        self.app = protocol.application(self._chat, self.models, lambda: self.active, self._check_key)

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if self.api_key and request.path != "/health" and not hmac.compare_digest(given, self.api_key.encode()):
            raise RequestError("the API key is missing or wrong; send it as: Authorization: Bearer KEY", 401)
        return await handler(request)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        request, question = read_request(await body_of(http), self.models, self._data)
        if self.active + request.n > self.max_requests:
            busy = f"{self.active} of at most {self.max_requests} problems in progress; try again later"
            raise RequestError(busy, 429)
        self.active += request.n
        try:
            if request.stream:
                return await self._stream(http, request, question)
            solutions = await all_of(self._solve(request, question, i) for i in range(request.n))
        finally:
            self.active -= request.n
        choices = [_choice(i, solution, request) for i, solution in enumerate(solutions)]
        return protocol.reply(request.model, choices, *_tokens(solutions))

    async def _solve(
        self, request: ChatBody, question: Question, index: int,
        on_workflow: Callable[[str], Awaitable[None]] | None = None,
    ) -> Solution:  # fmt: skip
        """Raises ``RequestError``."""
        draw = Draw(request.temperature, request.top_p, None if request.seed is None else request.seed + index)
        try:
            return await self.solver.answer(question, draw, fallback=self.fallback, on_workflow=on_workflow)
        except DataError as error:
            raise RequestError(str(error)) from error
        except InfrastructureError as error:
            raise RequestError(f"{type(error).__name__}: {error}", 502) from error

    async def _stream(self, http: web.Request, request: ChatBody, question: Question) -> web.StreamResponse:
        """Server-sent events: each choice's workflow as soon as it is written, then its answer in one piece."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(http)
        head = reply_head(request.model, "chat.completion.chunk")

        async def send(data: object) -> None:
            await response.write(f"data: {json.dumps(data)}\n\n".encode())

        async def delta(index: int, part: dict[str, Any], reason: str | None = None, **more: Any) -> None:
            await send({**head, "choices": [{"index": index, "delta": part, "finish_reason": reason, **more}]})

        async def workflow(index: int, source: str) -> None:
            await delta(index, {"reasoning_content": source})

        async def answered(index: int) -> Solution:
            await delta(index, {"role": "assistant", "content": ""})
            solution = await self._solve(request, question, index, partial(workflow, index))
            choice = _choice(index, solution, request)
            await delta(index, {name: choice["message"][name] for name in ("content", "refusal")})
            await delta(index, {}, choice["finish_reason"], workflow=choice["workflow"])
            return solution

        async def keep_open() -> None:
            with suppress(ConnectionError):
                while True:
                    await asyncio.sleep(_ALIVE_S)
                    await response.write(b": working\n\n")

        alive = asyncio.ensure_future(keep_open())
        try:
            solutions = await all_of(map(answered, range(request.n)))
            if request.stream_options.get("include_usage") is True:
                await send({**head, "choices": [], "usage": protocol.usage_of(*_tokens(solutions))})
            await response.write(b"data: [DONE]\n\n")
        except RequestError as error:
            await send(error_body(error.status, str(error)))
        except ConnectionError:  # the client has disconnected
            pass
        except Exception:
            logger.exception("a stream failed")
            await send(error_body(500, "the server failed; its log says why"))
        finally:
            alive.cancel()
        return response


def _choice(index: int, solution: Solution, request: ChatBody) -> dict[str, Any]:
    """The answer, with the workflow in the field where reasoning models have their reasoning."""
    execution = solution.execution
    message = {
        "role": "assistant",
        "content": cut_at(execution.answer or "", request.stop),
        "refusal": None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}",
        "reasoning_content": solution.workflow,
    }
    facts, operators = solution.as_json(), [call.name for call in execution.calls]
    workflow = {name: facts[name] for name in ("outcome", "fallback", "executor_tokens", "cost")}
    workflow |= {"operators": operators, "repairs": len(solution.attempts)}
    return {"index": index, "message": message, "finish_reason": "stop", "logprobs": None, "workflow": workflow}


def _tokens(solutions: Sequence[Solution]) -> tuple[int, int]:
    """Tokens that policy and executor together read and wrote."""
    read, written = zip(*(solution.tokens() for solution in solutions), strict=True)
    return sum(read), sum(written)
