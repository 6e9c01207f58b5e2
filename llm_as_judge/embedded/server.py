"""OpenAI-compatible endpoint of the nano executor: ``llm-as-judge embedded serve``.

Routes: ``/v1/models``, ``/v1/chat/completions`` and ``/health``. One engine thread decodes all requests together;
requests join and leave at every token. Features that are not supported (streaming, tools, schemas, stop words,
log-probabilities) are refused, not ignored.
"""

import asyncio
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from aiohttp import web

from llm_as_judge.embedded.engine import NanoEngine, Request
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm.protocol import LONGEST_BODY, BadRequest, NoModel, body_of, errors_as_json, number, seed_of, shown

WEIGHTS = Path(__file__).parent / "weights"
EXECUTOR = WEIGHTS / "executor"
MODEL_NAME = "nano-executor"
DEFAULT_MAX_TOKENS = 200
#: Longer prompts, in characters, are tokenised in a thread instead of on the event loop.
_QUICK_CHARS = 4096
_UNSUPPORTED = ("stream", "tools", "functions", "tool_choice", "stop", "logprobs", "logit_bias")
_ROLES = ("system", "user", "assistant")


class Batcher:
    """Runs an engine in a daemon thread, fed from a queue; ``complete`` awaits one request."""

    def __init__(self, engine: NanoEngine) -> None:
        self.engine = engine
        self._queue: queue.Queue[tuple[Request, Future[Request]]] = queue.Queue()
        threading.Thread(target=self._work, daemon=True, name="engine").start()

    async def complete(self, request: Request) -> Request:
        done: Future[Request] = Future()
        self._queue.put((request, done))
        return await asyncio.wrap_future(done)

    def _work(self) -> None:
        jobs: dict[int, Future[Request]] = {}
        while True:
            batch: list[tuple[Request, Future[Request]]] = []
            if not jobs:
                batch.append(self._queue.get())
                time.sleep(0.002)  # requests of one step arrive together: a short wait makes one prefill of many
            while len(batch) < min(16, self.engine.free):
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            before = len(self.engine.active)
            jobs.update((id(request), done) for request, done in batch)
            try:
                ended = self.engine.admit([request for request, _ in batch]) if batch else self.engine.step()
            except Exception as error:  # of any kind: these requests fail, the others continue
                for name in [id(request) for request, _ in batch] or list(jobs):
                    _settle(jobs.pop(name), error=error)
                del self.engine.active[before if batch else 0 :]
                continue
            for request in ended:
                _settle(jobs.pop(id(request)), request)


def _settle(done: Future[Request], request: Request | None = None, error: Exception | None = None) -> None:
    if not done.set_running_or_notify_cancel():  # the client went away
        return
    if request is not None:
        done.set_result(request)
    else:
        done.set_exception(error)


class Service:
    """Request handlers over one batcher and tokenizer."""

    def __init__(self, folder: Path = EXECUTOR, model: str = MODEL_NAME) -> None:
        from tokenizers import Tokenizer

        if not (folder / "model.safetensors").exists():
            raise ConfigError(f"no weights in {folder}: reinstall the package, or run `make pretrain`")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._marks = {role: int(self.tokenizer.token_to_id(f"<|{role}|>") or 0) for role in _ROLES}
        self.batcher = Batcher(NanoEngine(folder))
        self.model = model
        longest = max(map(len, self.tokenizer.get_vocab()))
        self._most_chars = longest * self.batcher.engine.max_length  # a longer prompt cannot fit

    async def _prompt(self, messages: object) -> list[int]:
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages must be a list with at least one message")
        for m in messages:
            role = m.get("role") if isinstance(m, dict) else None
            if not isinstance(role, str) or role not in _ROLES or not isinstance(m.get("content"), str):
                raise BadRequest(f"a message needs a role ({', '.join(_ROLES)}) and text content, got {shown(m)}")
        texts = [m["content"] for m in messages]
        total = sum(map(len, texts))
        if total > self._most_chars:  # refused before they are tokenised
            most = self.batcher.engine.max_length - 1
            raise BadRequest(f"the prompt has {total} characters; this model reads at most {most} tokens")

        def encode() -> list[list[int]]:
            return [list(self.tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]

        try:
            parts = encode() if total <= _QUICK_CHARS else await asyncio.to_thread(encode)
        except (TypeError, UnicodeError) as error:
            raise BadRequest("the text contains lone surrogates, which are not characters") from error
        ids = [i for m, part in zip(messages, parts, strict=True) for i in (self._marks[m["role"]], *part)]
        return [*ids, self._marks["assistant"]]

    def _requests(self, body: Mapping[str, Any], prompt: list[int]) -> list[Request]:
        refused = [name for name in _UNSUPPORTED if body.get(name)]
        if body.get("response_format") not in (None, {"type": "text"}):
            refused.append("response_format")
        if refused:
            raise BadRequest(f"{', '.join(refused)}: not supported by the embedded server")
        if body.get("model") not in (None, self.model):
            raise NoModel(f"no model {shown(body['model'])}; this server has {self.model!r}")
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
        max_tokens = int(number({"max_tokens": limit}, "max_tokens", 0, 1, 1 << 20))
        temperature, top_p = number(body, "temperature", 1.0, 0, 10), number(body, "top_p", 1.0, 1e-6, 1)
        seed, count = seed_of(body), int(number(body, "n", 1, 1, 64))
        seeds = [None if seed is None else (seed + i) % 2**63 for i in range(count)]
        requests = [Request(prompt, max_tokens, temperature, top_p, own) for own in seeds]
        try:
            self.batcher.engine.check(requests[0])
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return requests

    async def chat(self, http: web.Request) -> web.Response:
        body = await body_of(http)
        waiting = self._requests(body, await self._prompt(body.get("messages")))
        requests = await asyncio.gather(*(self.batcher.complete(r) for r in waiting))
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": str(self.tokenizer.decode(r.output)).strip()},
                "finish_reason": r.finish_reason,
            }
            for i, r in enumerate(requests)
        ]
        prompt, completion = len(requests[0].prompt), sum(len(r.output) for r in requests)
        return web.json_response(
            {
                "id": f"chatcmpl-{uuid.uuid4().hex[:12]}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self.model,
                "choices": choices,
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "total_tokens": prompt + completion,
                },
            }
        )

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "model": self.model, "active": len(self.batcher.engine.active)})


def application(folder: Path = EXECUTOR) -> web.Application:
    service = Service(folder)
    app = web.Application(middlewares=[errors_as_json], client_max_size=LONGEST_BODY)
    app.router.add_post("/v1/chat/completions", service.chat)
    app.router.add_get("/v1/models", service.models)
    app.router.add_get("/health", service.health)
    return app


def serve(host: str, port: int, ready: Callable[[], None] = lambda: None, folder: Path = EXECUTOR) -> None:
    """Serve until interrupted; ``ready`` is called when the server listens.

    Raises ``ConfigError`` if the port is in use or the weights are missing.
    """
    import torch

    torch.set_num_threads(1)
    app = application(folder)
    try:
        web.run_app(app, host=host, port=port, print=lambda _: ready(), access_log=None)
    except (OSError, UnicodeError) as error:  # the latter: no name of a host
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot serve at {host}:{port}: {reason}; choose another with --host, --port") from error
