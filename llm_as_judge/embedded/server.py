"""OpenAI-compatible endpoint of the nano executors: ``llm-as-judge embedded serve``. Runs start their own by
``embedded.supervise``.

Routes: ``/v1/models``, ``/v1/chat/completions`` and ``/health``. A thread for each model decodes all requests to it
together; they join and leave at every token. Features that are not supported (streaming, tools, schemas, stop words,
log-probabilities) are refused, not ignored.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path

from aiohttp import web
from pydantic import Field

from llm_as_judge.embedded.engine import NanoEngine, Request
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm import protocol
from llm_as_judge.llm.protocol import Body, Message, RequestError, body_of, checked

WEIGHTS = Path(__file__).parent / "weights"
EXECUTOR = WEIGHTS / "executor"
MODEL_NAME = "nano-executor"
#: A smaller, less able executor with the same tokenizer is loaded at its first request.
MODELS = {MODEL_NAME: EXECUTOR, "nano-small": WEIGHTS / "small"}
DEFAULT_MAX_TOKENS = 200
_UNSUPPORTED = ("stream", "tools", "functions", "tool_choice", "stop", "logprobs", "logit_bias")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class ChatBody(Body):
    temperature: float = Field(1.0, ge=0, le=10)
    top_p: float = Field(1.0, ge=1e-6, le=1)
    n: int = Field(1, ge=1, le=64)


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
            batch = [job for job in batch if job[1].set_running_or_notify_cancel()]  # without clients that went away
            if not batch and not jobs:
                continue
            before = len(self.engine.active)
            jobs.update((id(request), done) for request, done in batch)
            try:
                ended = self.engine.admit([request for request, _ in batch]) if batch else self.engine.step()
            except Exception as error:  # of any kind: these requests fail, the others continue
                for name in [id(request) for request, _ in batch] or list(jobs):
                    jobs.pop(name).set_exception(error)
                del self.engine.active[before if batch else 0 :]
                continue
            for request in ended:
                jobs.pop(id(request)).set_result(request)


class Service:
    def __init__(self) -> None:
        from tokenizers import Tokenizer

        if not (EXECUTOR / "model.safetensors").exists():
            raise ConfigError(f"no weights in {EXECUTOR}: reinstall the package, or run `make pretrain`")
        self.tokenizer = Tokenizer.from_file(str(EXECUTOR / "tokenizer.json"))
        self._marks = {role: int(self.tokenizer.token_to_id(f"<|{mark}|>") or 0) for role, mark in _ROLES.items()}
        self.batcher = cache(lambda model: Batcher(NanoEngine(MODELS[model])))
        longest = max(map(len, self.tokenizer.get_vocab()))
        self._most_chars = longest * self.batcher(MODEL_NAME).engine.max_length  # a longer prompt cannot fit

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        texts = [message.text for message in messages]
        total = sum(map(len, texts))
        if total > self._most_chars:  # refused before they are tokenised
            most = self.batcher(MODEL_NAME).engine.max_length - 1
            raise RequestError(f"the prompt has {total} characters; this model reads at most {most} tokens")
        parts = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        ids = [i for m, part in zip(messages, parts, strict=True) for i in (self._marks[m.role], *part)]
        return [*ids, self._marks["assistant"]]

    def _requests(self, body: ChatBody, prompt: list[int]) -> list[Request]:
        limit, seed = body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS, body.seed
        seeds = [None if seed is None else (seed + i) % 2**63 for i in range(body.n)]
        requests = [Request(prompt, limit, body.temperature, body.top_p, own) for own in seeds]
        try:
            self.batcher(MODEL_NAME).engine.check(requests[0])
        except ValueError as error:
            raise RequestError(str(error)) from error
        return requests

    async def chat(self, http: web.Request) -> web.Response:
        body = checked({"model": MODEL_NAME} | await body_of(http), ChatBody, MODELS, _UNSUPPORTED)
        waiting, batcher = self._requests(body, self._prompt(body.messages)), self.batcher(body.model)
        requests = await asyncio.gather(*map(batcher.complete, waiting))
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": str(self.tokenizer.decode(r.output)).strip()},
                "finish_reason": r.finish_reason,
            }
            for i, r in enumerate(requests)
        ]
        return protocol.reply(body.model, choices, len(requests[0].prompt), sum(len(r.output) for r in requests))


def application() -> web.Application:
    service = Service()
    return protocol.application(service.chat, MODELS, lambda: len(service.batcher(MODEL_NAME).engine.active))


def serve(host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve until interrupted; ``ready`` is called when the server listens.

    Raises ``ConfigError`` if the port is in use or the weights are missing.
    """
    import torch

    torch.set_num_threads(1)
    app = application()
    try:
        web.run_app(app, host=host, port=port, print=lambda _: ready(), access_log=None)
    except (OSError, UnicodeError) as error:  # the latter: no name of a host
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot serve at {host}:{port}: {reason}; choose another with --host, --port") from error
