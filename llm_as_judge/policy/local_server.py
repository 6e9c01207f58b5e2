"""Executor or judge in this process, behind the interface of ``llm.transport.Transport``: no second server.

Weights are loaded at the first request, and all computing is done on the device's thread, in rounds between sampling
and updates (``policy.answering``). A request's time limit counts its own decoding, never waiting.
"""

import asyncio
import json
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from llm_as_judge.errors import ConfigError, PromptRefused, ProviderError, RequestRefused, is_out_of_memory
from llm_as_judge.llm.client import Server
from llm_as_judge.llm.concurrency import Places
from llm_as_judge.policy.answering import Answerer, Request
from llm_as_judge.policy.chat import message_ids, messages_for
from llm_as_judge.policy.device import on_device
from llm_as_judge.types import Prompt

T = TypeVar("T")


class LocalServer:
    """One frozen model for all roles that name it. ``load`` opens it on the device's thread.

    ``move`` may replace it by another server before its first request.
    """

    def __init__(self, name: str, load: Callable[[], Answerer], rows: int, timeout_s: float = math.inf) -> None:
        self.root = f"{name} in this process"
        self.places = Places(rows)
        self._load, self._timeout_s = load, timeout_s
        self._moved: tuple[Server, str] | None = None
        self._answerer: Answerer | None = None
        self._opening = asyncio.Lock()
        self._waiting: deque[tuple[Request, asyncio.Future[Request]]] = deque()
        self._running: dict[Request, asyncio.Future[Request]] = {}
        self._rounds: asyncio.Task[None] | None = None

    def move(self, server: Server, model: str) -> None:
        """Send all requests to ``server``, which knows the model as ``model``."""
        self._moved, self.places = (server, model), server.places

    async def aclose(self) -> None:
        """Stop after the current round; requests under way are cancelled."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
            self._rounds = None
        for future in [*self._running.values(), *(future for _, future in self._waiting)]:
            future.cancel()
        self._running.clear()
        self._waiting.clear()
        if self._answerer is not None:
            self._answerer.drop()
        if self._moved is not None:
            await self._moved[0].aclose()

    async def ask(self, path: str, body: Mapping[str, Any] | None, parse: Callable[[str], T], who: str = "") -> T:
        """Answer a chat request in the form of the OpenAI protocol, as read by ``parse``.

        Raises ``RequestRefused`` for features it lacks, ``PromptRefused``, and ``ProviderError`` after ``timeout_s`` of
        decoding, for a failure of the device, and if the weights cannot be loaded.
        """
        if self._moved is not None:
            server, model = self._moved
            asked = body and {**body, "model": model, "chat_template_kwargs": {"enable_thinking": False}}
            return await server.ask(path, asked, parse, who)
        if body is None:
            raise RequestRefused(f"{self.root}: GET {path}: not supported", "request")
        if unsupported := [name for name in ("response_format", "tools", "stream", "stop") if body.get(name)]:
            raise RequestRefused(f"{self.root}: {', '.join(unsupported)}: not supported", "request")
        try:
            answerer = await self.open()
        except ConfigError as error:  # of the weights, whatever the request is
            raise ProviderError(str(error), "model") from error
        prompt = await asyncio.to_thread(_ids, answerer, body["messages"])
        longest = answerer.context - 1
        if len(prompt) > longest:
            raise PromptRefused(
                f"{self.root}: the prompt has {len(prompt)} tokens, it reads at most {longest}; raise executor.context "
                f"or judge.context",
                "context",
            )
        temperature, top_p = float(body.get("temperature", 1.0)), float(body.get("top_p", 1.0))
        request = Request(prompt, int(body["max_tokens"]), temperature, top_p, body.get("seed"), self._timeout_s)
        async with self.places.one():
            done = await self._decoded(request)
        if done.finish_reason == "timeout":
            what = f"{self.root}: {len(done.output)} tokens took {done.seconds:.0f} s of decoding"
            raise ProviderError(f"{what}; raise timeout_s={self._timeout_s:g} or lower max_tokens", "timeout")
        ids = done.output[:-1] if done.finish_reason == "stop" else done.output
        message = {"content": answerer.model.tokenizer.decode(ids, skip_special_tokens=True)}
        choice = {"message": message, "finish_reason": done.finish_reason}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(done.output)}
        return parse(json.dumps({"choices": [choice], "usage": usage}))

    async def open(self) -> Answerer:
        """Load the model. Raises ``ConfigError`` if it cannot be used."""
        async with self._opening:
            if self._answerer is None:
                self._answerer = await on_device(self._load)
            return self._answerer

    async def _decoded(self, request: Request) -> Request:
        future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.ensure_future(self._run())
        return await future

    async def _run(self) -> None:
        """Run rounds until no request is left."""
        answerer = await self.open()
        loop = asyncio.get_running_loop()

        def take() -> Request | None:
            while self._waiting:  # filled by the event loop meanwhile; both ends of a deque are safe
                request, future = self._waiting.popleft()
                if not future.cancelled():
                    self._running[request] = future
                    return request
            return None

        def settle(request: Request) -> None:
            future = self._running.pop(request)

            def answer() -> None:
                if not future.done():
                    future.set_result(request)

            loop.call_soon_threadsafe(answer)

        try:
            while self._waiting or answerer.busy:
                await on_device(answerer.round, take, settle)
        except Exception as error:  # of torch: every request of the round fails
            answerer.drop()
            why = f"{type(error).__name__}: {error}"
            if is_out_of_memory(error):
                why = "out of memory; lower executor.concurrency, executor.context or judge.concurrency"
            failed = ProviderError(f"{self.root}: {why}", "server")
            for future in self._running.values():
                if not future.done():
                    future.set_exception(failed)
            self._running.clear()
            if self._waiting:
                self._rounds = asyncio.ensure_future(self._run())


def _ids(answerer: Answerer, messages: list[dict[str, str]]) -> list[int]:
    """Return token ids of a chat."""
    tokenizer = answerer.model.tokenizer
    # A tokenizer cannot read lone surrogates, which a model's text may have.
    messages = [{**one, "content": one["content"].encode("utf-8", "replace").decode()} for one in messages]
    if messages[0]["role"] == "system":  # which some templates refuse
        messages = messages_for(tokenizer, Prompt(messages[0]["content"], messages[-1]["content"]))
    return message_ids(tokenizer, messages)
