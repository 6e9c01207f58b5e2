"""OpenAI-compatible HTTP handlers of ``llm-as-judge serve`` over one ``Solver``.

``/v1/chat/completions`` (also streaming), ``/v1/models`` and ``/health``. If a workflow fails, the answer is empty and
``refusal`` has the reason; if the executor or the sandbox fails, the status is 502, which clients retry.

``temperature``, ``top_p`` and ``seed`` apply to the policy, which writes the workflow; the executor keeps its own.
Fields beyond the protocol (``extra_body`` of the OpenAI client): ``domain``, ``context``, ``entry_point``,
``public_tests``. Without ``domain`` the model name decides (``nano:qa``). ``max_tokens`` has no effect, because the
answer is what the workflow returns. Everything unsupported is refused, not ignored.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import AfterValidator, BeforeValidator, Field

from llm_as_judge.answers.code import is_name
from llm_as_judge.config.data import DataConfig
from llm_as_judge.errors import ConfigError, DataError, InfrastructureError
from llm_as_judge.evaluation.evaluate import all_of
from llm_as_judge.llm import protocol
from llm_as_judge.llm.protocol import Body, Handler, RequestError, Unicode, body_of, checked, error_body, reply_head
from llm_as_judge.solver import Draw, Solution, Solver
from llm_as_judge.types import Domain, Question

logger = logging.getLogger(__name__)

#: Seconds between comments that keep a waiting stream open.
_ALIVE_S = 10.0
_UNSUPPORTED = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "logit_bias", "audio",
    "prediction", "web_search_options", "frequency_penalty", "presence_penalty",
)  # fmt: skip
_SPEAKERS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def _function(name: str) -> str:
    if not is_name(name):
        raise ValueError("not the name of a function")
    return name


def _stops(given: Any) -> Any:
    return [given] if isinstance(given, str) and given else given or []


class ChatBody(Body):
    """The fields that have an effect, or are checked."""

    n: int = Field(1, ge=1, le=16)
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_stops)] = Field([], max_length=16)
    stream: bool = False
    stream_options: dict[str, Any] = Field({})
    modalities: list[Literal["text"]] = Field([])
    domain: Domain | None = None
    context: Unicode = ""
    entry_point: Annotated[str, AfterValidator(_function)] | None = None
    public_tests: tuple[Unicode, ...] = Field((), strict=False)


def read_request(body: Mapping[str, Any], models: Mapping[str, Domain], data: DataConfig) -> tuple[ChatBody, Question]:
    """Read a request; ``models`` are the served names and their domains. Raises ``RequestError``."""
    read = checked(body, ChatBody, models, _UNSUPPORTED)
    turns = [(_SPEAKERS[one.role], one.text) for one in read.messages]
    if turns[-1][0] != "User" or not turns[-1][1].strip():
        raise RequestError("the last message must be the user's and hold the problem; it is another's or empty")
    instructions = [text for speaker, text in turns if speaker == "System"]
    dialogue = [f"{speaker}: {text}" for speaker, text in turns if speaker != "System"]
    # A single message as it is; several as a dialogue, preceded by the instructions.
    text = "\n\n".join([*instructions, *(dialogue if len(dialogue) > 1 else [turns[-1][1]])])
    domain = read.domain or models[read.model]
    try:
        like = data.like(domain)
    except ConfigError as error:
        raise RequestError(str(error)) from None
    return read, Question("request", text, domain, read.context, read.entry_point, read.public_tests, like=like)


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
    max_requests: int = 64  # problems in progress; a request for n answers counts n times
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
        """Solve a question. Raises ``RequestError``."""
        draw = Draw(request.temperature, request.top_p, None if request.seed is None else request.seed + index)
        try:
            return await self.solver.answer(question, draw, fallback=self.fallback, on_workflow=on_workflow)
        except DataError as error:
            raise RequestError(str(error)) from error
        except InfrastructureError as error:
            raise RequestError(f"{type(error).__name__}: {error}", 502) from error

    async def _stream(self, http: web.Request, request: ChatBody, question: Question) -> web.StreamResponse:
        """Stream server-sent events: each choice's workflow as soon as it is written, then its answer in one piece."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(http)
        head = reply_head(request.model, "chat.completion.chunk")

        async def send(data: object) -> None:
            await response.write(f"data: {json.dumps(data)}\n\n".encode())

        async def delta(index: int, part: dict[str, Any], reason: str | None = None, **more: Any) -> None:
            await send({**head, "choices": [{"index": index, "delta": part, "finish_reason": reason, **more}]})

        async def answered(index: int) -> Solution:
            await delta(index, {"role": "assistant", "content": ""})
            solved = await self._solve(request, question, index, lambda text: delta(index, {"reasoning_content": text}))
            choice = _choice(index, solved, request)
            await delta(index, {name: choice["message"][name] for name in ("content", "refusal")})
            await delta(index, {}, choice["finish_reason"], workflow=choice["workflow"])
            return solved

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
    """Return the answer, with the workflow in the field where reasoning models have their reasoning."""
    execution, text = solution.execution, solution.answer or ""
    message = {
        "role": "assistant",
        "content": text[: min((at for stop in request.stop if (at := text.find(stop)) >= 0), default=len(text))],
        "refusal": None if execution.outcome == "finished" else f"{execution.outcome}: {execution.error}",
        "reasoning_content": solution.workflow,
    }
    facts, operators = solution.as_json(), [call.name for call in execution.calls]
    workflow = {name: facts[name] for name in ("outcome", "fallback", "executor_tokens", "cost")}
    workflow |= {"operators": operators, "repairs": len(solution.attempts)}
    return {"index": index, "message": message, "finish_reason": "stop", "logprobs": None, "workflow": workflow}


def _tokens(solutions: Sequence[Solution]) -> tuple[int, int]:
    """Count the tokens that policy and executor together read and wrote."""
    read, written = zip(*(solution.tokens() for solution in solutions), strict=True)
    return sum(read), sum(written)
