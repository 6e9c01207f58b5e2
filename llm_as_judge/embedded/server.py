"""OpenAI-compatible endpoint of the nano executors: ``llm-as-judge embedded serve``, or a child process of a run.

Routes: ``/v1/models``, ``/v1/chat/completions`` and ``/health``. A thread for each model decodes all its requests
together; they join and leave at every token. Features that are not supported (streaming, tools, schemas, stop words,
log-probabilities) are refused, not ignored.
"""

import asyncio
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from aiohttp import web
from pydantic import Field

from llm_as_judge.embedded.engine import NanoEngine, NanoRequest
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.llm import protocol
from llm_as_judge.llm.protocol import Body, Message, RequestError, body_of, checked

WEIGHTS = Path(__file__).parent / "weights"
EXECUTOR = WEIGHTS / "executor"
MODEL_NAME = "nano-executor"
#: A less able executor with the same tokenizer, loaded at its first request (``config/two_executors.yaml``).
MODELS = {MODEL_NAME: EXECUTOR, "nano-small": WEIGHTS / "small"}
DEFAULT_MAX_TOKENS = 200
_START_SECONDS = 120.0
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
        self._queue: queue.Queue[NanoRequest] = queue.Queue()
        threading.Thread(target=self._work, daemon=True, name="engine").start()

    async def complete(self, request: NanoRequest) -> NanoRequest:
        self._queue.put(request)
        return await asyncio.wrap_future(request.done)

    def _work(self) -> None:
        active = self.engine.active
        while True:
            batch = list[NanoRequest]()
            if not active:
                batch.append(self._queue.get())
                time.sleep(0.002)  # requests of one step arrive together: a short wait makes one prefill of many
            while len(batch) < min(16, self.engine.free) and not self._queue.empty():
                batch.append(self._queue.get())
            batch = [request for request in batch if request.done.set_running_or_notify_cancel()]  # whose client waits
            if not batch and not active:
                continue
            asked, before = batch or [*active], len(active)
            try:
                ended = self.engine.admit(batch) if batch else self.engine.step()
            except Exception as error:  # of any kind: these requests fail, the others continue
                for request in asked:
                    request.done.set_exception(error)
                del active[before if batch else 0 :]
                continue
            for request in ended:
                request.done.set_result(request)


class Service:
    def __init__(self) -> None:
        from tokenizers import Tokenizer

        if not (EXECUTOR / "model.safetensors").exists():
            raise ConfigError(f"no weights in {EXECUTOR}: reinstall the package, or run `make pretrain`")
        self.tokenizer = Tokenizer.from_file(str(EXECUTOR / "tokenizer.json"))
        self._marks = {role: int(self.tokenizer.token_to_id(f"<|{mark}|>") or 0) for role, mark in _ROLES.items()}
        self.batcher = cache(lambda model: Batcher(NanoEngine(MODELS[model])))
        self._most = self.batcher(MODEL_NAME).engine.max_length - 1  # tokens of a prompt
        self._longest = max(map(len, self.tokenizer.get_vocab()))

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        texts = [message.text for message in messages]
        total, most = sum(map(len, texts)), self._most
        if total > self._longest * most:  # refused before they are tokenised
            raise RequestError(f"the prompt has {total} characters; this model reads at most {most} tokens")
        parts = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        ids = [i for m, part in zip(messages, parts, strict=True) for i in (self._marks[m.role], *part)]
        if len(ids) >= most:
            raise RequestError(f"the prompt has {len(ids) + 1} tokens; this model reads at most {most}")
        return [*ids, self._marks["assistant"]]

    async def chat(self, http: web.Request) -> web.Response:
        body = checked({"model": MODEL_NAME} | await body_of(http), ChatBody, [*MODELS], _UNSUPPORTED)
        prompt, seed = self._prompt(body.messages), body.seed
        limit = body.max_completion_tokens or body.max_tokens or DEFAULT_MAX_TOKENS
        seeds = [None if seed is None else (seed + i) % 2**63 for i in range(body.n)]
        waiting = (NanoRequest(prompt, limit, body.temperature, body.top_p, own) for own in seeds)
        requests = await asyncio.gather(*map(self.batcher(body.model).complete, waiting))
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": str(self.tokenizer.decode(r.output)).strip()},
                "finish_reason": r.finish_reason,
            }
            for i, r in enumerate(requests)
        ]
        return protocol.reply(body.model, choices, len(requests[0].prompt), sum(len(r.output) for r in requests))


def serve(host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; ``ready`` gets the address once the server listens.

    Raises ``ConfigError`` if the address cannot be used or the weights are missing.
    """
    torch.set_num_threads(1)
    with protocol.bound(host, port) as (sock, address):
        service = Service()
        app = protocol.application(service.chat, [*MODELS], lambda: len(service.batcher(MODEL_NAME).engine.active))
        web.run_app(app, sock=sock, print=lambda _: ready(address), access_log=None)


@contextmanager
def own_server(log: Path) -> Iterator[str]:
    """Serve the nano executor for the block in a child process, on a free port, and give the address.

    The child ends with its standard input, which the kernel closes however the run ends. Raises ``ProviderError`` if it
    does not start.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("ab") as file,
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the run alone
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
            if not said:
                raise ProviderError(f"the embedded server did not start within {_START_SECONDS:.0f} s; see {log}")
            if not (address := process.stdout.readline().decode().strip()):
                raise ProviderError(f"the embedded server ended with status {process.wait()}; see {log}")
            yield address
        finally:
            process.kill()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    serve("127.0.0.1", 0, lambda address: print(address, flush=True))
