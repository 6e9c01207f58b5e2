"""The nano executor behind an OpenAI-compatible endpoint: ``llm-as-judge embedded serve``.

``/v1/models``, ``/v1/chat/completions``, ``/v1/completions`` (prompt as text or token ids) and ``/health``. One engine
thread decodes all requests together; requests join and leave at every token. Streaming and tools are refused.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from llm_as_judge.embedded.engine import Engine, Request
from llm_as_judge.embedded.tokenizer import ASSISTANT_ID, SYSTEM_ID, USER_ID
from llm_as_judge.errors import ConfigError

WEIGHTS = Path(__file__).parent / "weights"
EXECUTOR = WEIGHTS / "executor"
MODEL_NAME = "nano-executor"
DEFAULT_MAX_TOKENS = 200
_ROLES = {"system": SYSTEM_ID, "user": USER_ID, "assistant": ASSISTANT_ID}


@dataclass(slots=True)
class _Job:
    request: Request
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Request] = field(init=False)

    def __post_init__(self) -> None:
        self.done = self.loop.create_future()

    def settle(self, error: BaseException | None = None) -> None:
        def set_result() -> None:
            if self.done.done():
                return
            if error is None:
                self.done.set_result(self.request)
            else:
                self.done.set_exception(error)

        self.loop.call_soon_threadsafe(set_result)


class Batcher:
    """Feeds an engine from a queue in one daemon thread; ``complete`` awaits one request."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._queue: queue.Queue[_Job] = queue.Queue()
        threading.Thread(target=self._work, daemon=True, name="engine").start()

    async def complete(self, request: Request) -> Request:
        job = _Job(request, asyncio.get_running_loop())
        self._queue.put(job)
        return await job.done

    def _work(self) -> None:
        jobs: dict[int, _Job] = {}
        while True:
            batch: list[_Job] = []
            if not jobs:
                batch.append(self._queue.get())
                time.sleep(0.002)  # calls of one step arrive together: a moment's wait makes one prefill of many
            while len(batch) < min(16, self.engine.free):
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            try:
                jobs.update((id(j.request), j) for j in batch)
                ended = self.engine.admit([j.request for j in batch]) if batch else self.engine.step()
            except Exception as error:  # the border of the thread: every waiting caller is told
                for job in jobs.values():
                    job.settle(error)
                jobs.clear()
                self.engine.active.clear()
                continue
            for request in ended:
                jobs.pop(id(request)).settle()


class BadRequest(ValueError):
    """The caller's mistake; becomes status 400."""


def _number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low} to {high}, got {value!r}")
    return float(value)


class Service:
    """Request handlers over one batcher and tokenizer."""

    def __init__(self, folder: Path = EXECUTOR, model: str = MODEL_NAME) -> None:
        from tokenizers import Tokenizer

        if not (folder / "model.safetensors").exists():
            raise ConfigError(f"no weights in {folder}: install the package whole, or run `make pretrain`")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.batcher = Batcher(Engine(folder))
        self.model = model

    def _chat_prompt(self, messages: object) -> list[int]:
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages must be a list with at least one message")
        ids: list[int] = []
        for m in messages:
            if not isinstance(m, dict) or m.get("role") not in _ROLES or not isinstance(m.get("content"), str):
                raise BadRequest(f"a message needs a role ({', '.join(_ROLES)}) and text content, got {m!r}"[:300])
            ids += [_ROLES[m["role"]], *self.tokenizer.encode(m["content"], add_special_tokens=False).ids]
        return [*ids, ASSISTANT_ID]

    async def _run(self, body: Mapping[str, Any], prompt: list[int]) -> list[Request]:
        if body.get("stream"):
            raise BadRequest("stream is not supported by the embedded server")
        if body.get("model") not in (None, self.model):
            raise web.HTTPNotFound(text=_error(f"no model {body['model']!r} here; there is {self.model!r}"))
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
        seed = body.get("seed")
        count = int(_number(body, "n", 1, 1, 64))
        requests = [
            Request(
                prompt,
                int(_number({"max_tokens": limit}, "max_tokens", 0, 1, 1 << 20)),
                _number(body, "temperature", 1.0, 0, 10),
                _number(body, "top_p", 1.0, 1e-6, 1),
                None if seed is None else int(seed) + i,
            )
            for i in range(count)
        ]
        try:
            self.batcher.engine.check(requests[0])
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return list(await asyncio.gather(*(self.batcher.complete(r) for r in requests)))

    def _answer(self, kind: str, requests: list[Request], choices: list[dict[str, Any]]) -> web.Response:
        prompt, completion = len(requests[0].prompt), sum(len(r.output) for r in requests)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        name = f"{kind}-{uuid.uuid4().hex[:12]}"
        body = {
            "id": name,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
        }
        return web.json_response({**body, "usage": usage})

    def _text(self, request: Request) -> str:
        return str(self.tokenizer.decode(request.output)).strip()

    async def chat(self, http: web.Request) -> web.Response:
        body = await _body(http)
        requests = await self._run(body, self._chat_prompt(body.get("messages")))
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": self._text(r)},
                "finish_reason": r.finish_reason,
            }
            for i, r in enumerate(requests)
        ]
        return self._answer("chat.completion", requests, choices)

    async def completions(self, http: web.Request) -> web.Response:
        body = await _body(http)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt).ids
        size = self.tokenizer.get_vocab_size()
        if not isinstance(prompt, list) or not all(isinstance(t, int) and 0 <= t < size for t in prompt):
            raise BadRequest(f"prompt must be text or a list of token ids below {size}")
        requests = await self._run(body, prompt)
        choices = [
            {
                "index": i,
                "text": self.tokenizer.decode(r.output),
                "finish_reason": r.finish_reason,
                "logprobs": None,
            }
            for i, r in enumerate(requests)
        ]
        return self._answer("text_completion", requests, choices)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "model": self.model, "active": len(self.batcher.engine.active)})


def _error(message: str, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind}})


async def _body(http: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await http.text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        response = await handler(request)
    except BadRequest as error:
        return web.json_response(text=_error(str(error)), status=400)
    return response


def application(folder: Path = EXECUTOR) -> web.Application:
    service = Service(folder)
    app = web.Application(middlewares=[_errors], client_max_size=8 << 20)
    app.router.add_post("/v1/chat/completions", service.chat)
    app.router.add_post("/v1/completions", service.completions)
    app.router.add_get("/v1/models", service.models)
    app.router.add_get("/health", service.health)
    return app


def serve(host: str = "127.0.0.1", port: int = 8002, folder: Path = EXECUTOR) -> None:
    """Serve until interrupted; raises ``ConfigError`` when the port is taken or the weights are missing."""
    import torch

    torch.set_num_threads(1)
    app = application(folder)
    try:
        web.run_app(app, host=host, port=port, print=None, access_log=None)
    except OSError as error:
        raise ConfigError(f"cannot serve at {host}:{port}: {error.strerror}; choose another with --port") from error
