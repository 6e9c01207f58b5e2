"""Sampling by a vLLM server that serves the base model with LoRA enabled.

Requests and replies carry token ids and log-probs of the sampling distribution; no text is tokenised again. Every
version of the adapter has a unique name, ``policy-vN-DIGEST``: vLLM's prefix cache is keyed by that name, and an
adapter that another run left under the same version is never used by mistake. Start the server with

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --max-lora-rank 64 --max-loras 2 \
        --logprobs-mode processed_logprobs

The server must be able to read ``adapter_dir`` under the same path. If the server restarts, requests wait for it and
the adapter is loaded again. Each call runs an event loop in its own thread, because the caller may be inside one.
"""

import asyncio
import hashlib
import logging
import math
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar
from weakref import ref

from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.llm.client import model_names, parse_json
from llm_as_judge.llm.transport import Transport
from llm_as_judge.policy.chat import completion_of
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.policy.vllm_server import OwnServer
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Completion, OnCompletion

logger = logging.getLogger(__name__)

T = TypeVar("T")


class VLLMEngine:
    """Client of one vLLM server. Before the first ``sync``, it samples from the base model.

    ``model`` is the base model's name on the server; ``own`` is a server started for this run, kept alive by the
    engine. Methods raise ``ConfigError`` if key, model or adapters are wrong, ``ProviderError`` without a usable reply.
    """

    def __init__(
        self, config: EngineConfig, model: str, adapter_dir: Path, tokenizer: Any, *, own: OwnServer | None = None
    ) -> None:
        self.config, self._own = config, own
        self._base_model, self._adapter_dir, self._tokenizer = model, adapter_dir, tokenizer
        self._answered = False  # until a first answer, a refused connection means a wrong address, not a restart
        self._synced: tuple[ref[object], int] | None = None
        self._loaded: str | None = None
        self.version = 0

    def check(self) -> list[str]:
        """Check the served models, and return their names. Requires the base model, and a token with its log-prob."""

        async def ask(transport: Transport) -> list[str]:
            names = await transport.ask("/models", None, model_names)
            if self._base_model not in names:
                raise ConfigError(
                    f"{self.config.base_url} serves {', '.join(names) or 'no model'}, not {self._base_model}; "
                    "start it with that model, or let --served-model-name say so"
                )
            self._sampled((await self._complete(transport, [0], _fields(n=1, max_tokens=1)))["choices"][0])
            return names

        return self._run(ask)

    def sync(self, policy: Any, version: int) -> None:
        """Load the adapter of a ``Policy`` under a new name and unload the previous one.

        ``rl.pipeline`` calls this before it samples a batch. Does nothing if ``version`` of ``policy`` is loaded.
        """
        if self._synced is not None and self._synced[0]() is policy and self._synced[1] == version:
            return
        name, before = self._write(policy, version), self._loaded

        async def load(transport: Transport) -> None:
            await self._adapter(transport, "load", name)
            if before:
                await self._adapter(transport, "unload", before)

        if name != before:
            self._run(load)
            if before:
                shutil.rmtree(self._adapter_dir / before, ignore_errors=True)
        self._synced, self._loaded, self.version = (ref(policy), version), name, version

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int = 1, *, sampling: Sampling = PLAIN, max_new_tokens: int = 1024,
        seed: int = 0, on_completion: OnCompletion | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """Sample ``n`` completions of every prompt, in order. Raises ``ProviderError``.

        ``on_completion`` is called for all completions of a prompt when the last one is complete.
        """
        asked = n if sampling.temperature > 0 else 1  # vLLM refuses several greedy completions, which would be equal
        fields = _fields(**{**asdict(sampling), "top_k": sampling.top_k or -1}, n=asked, max_tokens=max_new_tokens)

        async def one(transport: Transport, index: int) -> list[Completion]:
            # vLLM adds k to the seed for completion k: prompts with consecutive seeds would share their noise.
            prompt = list(prompts[index])
            reply = await self._complete(transport, prompt, {**fields, "seed": derived_seed(seed, index)})
            completions = self._completions(prompt, reply, asked) * (n // asked)
            for member, completion in enumerate(completions):
                if on_completion is not None:
                    on_completion(index, member, completion)
            return completions

        async def ask(transport: Transport) -> list[list[Completion]]:
            return await asyncio.gather(*(one(transport, index) for index in range(len(prompts))))

        async def ask_again(transport: Transport) -> list[list[Completion]]:
            try:
                return await ask(transport)
            except ProviderError as error:
                if error.cause != "model" or self._loaded is None:
                    raise
            logger.warning("%s no longer has %s, loading it again", transport.root, self._loaded)
            await self._adapter(transport, "load", self._loaded)
            return await ask(transport)

        return self._run(ask_again)

    def _write(self, policy: Any, version: int) -> str:
        """Write the adapter in the base model's dtype, in which the server computes; returns the folder's name."""
        if not self._adapter_dir.exists():
            self._adapter_dir.mkdir(parents=True)
            self._adapter_dir.chmod(0o755)  # for a server under another user
        aside = self._adapter_dir / f".policy-v{version}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        policy.save_adapter(aside, policy.base.dtype)
        digest = hashlib.blake2b((aside / "adapter_model.safetensors").read_bytes(), digest_size=4).hexdigest()
        target = self._adapter_dir / f"policy-v{version}-{digest}"
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        return target.name

    def _run(self, ask: Callable[[Transport], Awaitable[T]]) -> T:
        async def run() -> T:
            transport = Transport(self.config, restart_s=self.config.restart_s, answered=self._answered)
            try:
                return await ask(transport)
            except ProviderError as error:
                if error.cause in ("key", "model"):
                    raise ConfigError(
                        f"{error}; the policy is {self._base_model!r}, and adapters need --enable-lora, "
                        f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and a server that can read {self._adapter_dir.resolve()} "
                        "under this path: on another machine by a shared file system"
                    ) from error
                raise
            finally:
                self._answered = transport.answered
                await transport.aclose()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()

    async def _adapter(self, transport: Transport, verb: Literal["load", "unload"], name: str) -> None:
        """Load or unload an adapter; do nothing if that was done before."""
        body = {"lora_name": name}
        if verb == "load":
            body["lora_path"] = str((self._adapter_dir / name).resolve())
        try:
            await transport.ask(f"/{verb}_lora_adapter", body, str)  # answered with plain text
        except ProviderError as error:
            if {"load": "already", "unload": "be found"}[verb] not in str(error):  # vLLM's words
                raise

    async def _complete(self, transport: Transport, prompt: list[int], fields: Mapping[str, Any]) -> dict[str, Any]:
        model = self._loaded or self._base_model
        reply = await transport.ask("/completions", {"model": model, "prompt": prompt, **fields}, parse_json)
        if reply.get("model") not in (None, model):
            raise ProviderError(f"{transport.root} answered with model {reply['model']!r} instead of {model!r}")
        return reply

    def _completions(self, prompt: list[int], reply: Mapping[str, Any], count: int) -> list[Completion]:
        """Make completions whose text is decoded from the ids, not vLLM's text, so that both engines decode alike."""
        choices = sorted(reply["choices"], key=lambda c: int(c["index"]))
        if len(choices) != count:
            raise ProviderError(f"{self.config.base_url} returned {len(choices)} completions instead of {count}")
        return [
            # If the reason is "stop", the ids include the end-of-sequence id.
            completion_of(self._tokenizer, prompt, *self._sampled(c), c["finish_reason"] == "stop", self.version)
            for c in choices
        ]

    def _sampled(self, choice: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        """Read token ids and log-probs of a choice, equally many."""
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(ids) != len(logprobs):
            raise ProviderError(
                f"{self.config.base_url} returned no token ids with log-probs; upgrade the server "
                "(return_token_ids needs vLLM >= 0.10.2)"
            )
        if any(p is None or not math.isfinite(p) for p in logprobs):
            raise ProviderError(
                f"{self.config.base_url} returned a log-prob that is not finite; check --logprobs-mode and the model"
            )
        if (reason := choice.get("finish_reason")) not in ("stop", "length"):
            raise ProviderError(f"{self.config.base_url} ended a completion by {reason!r}; see the server's own log")
        return [int(i) for i in ids], [float(p) for p in logprobs]


def _fields(**sampling: Any) -> dict[str, Any]:
    return {
        **sampling,
        # Explicit, because the model's generation_config would change the defaults.
        "repetition_penalty": 1.0,
        "min_p": 0.0,
        "logprobs": 1,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
