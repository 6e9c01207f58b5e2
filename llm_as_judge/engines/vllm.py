"""Generation by a vLLM server that serves the base model with LoRA enabled.

Prompts go as token ids and token ids come back, with log-probs of the sampling distribution; no text is
tokenised again. Every version of the adapter gets a name of its own, ``policy-vN``: vLLM's prefix cache is
keyed by that name. Start the server with

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --max-lora-rank 64 --max-loras 2 \
        --logprobs-mode processed_logprobs

``adapter_dir`` must be readable by the server under the same path. A server that is gone is waited for, and one
that came back without the adapter is given it again. Talks HTTP with the standard library, a thread a prompt.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)


class AdapterSource(Protocol):
    """What ``sync`` needs of ``rl.policy.Policy``."""

    def save_adapter(self, directory: Path) -> None: ...


class VLLMEngine:
    """``sync`` once before the first ``generate``; until then the server's base model answers."""

    def __init__(
        self,
        base_url: str,
        model: str,
        adapter_dir: Path,
        tokenizer: Any,
        *,
        api_key: str = "",
        timeout_s: float = 600.0,
        max_retries: int = 4,
        concurrency: int = 32,
        restart_s: float = 300.0,
    ) -> None:
        """``timeout_s`` is for one request, ``restart_s`` for a server that refuses connections to come back."""
        self._url = base_url.rstrip("/").removesuffix("/v1")
        self._base_model = model
        self._adapter_dir = adapter_dir
        self._tokenizer = tokenizer
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._concurrency = concurrency
        self._restart_s = restart_s
        self._answered = False  # a server that never did is a wrong address, not one that restarts
        self._reloading = Lock()
        self._reloads = 0
        self._loaded: str | None = None
        self.version = 0

    def sync(self, policy: object, version: int) -> None:
        """Writes the adapter aside, renames it, loads it as ``policy-vN`` and unloads the one before."""
        name = f"policy-v{version}"
        if name == self._loaded:
            return
        if not hasattr(policy, "save_adapter"):
            raise TypeError(f"{type(policy).__name__} has no save_adapter")
        source: AdapterSource = policy
        target, aside = self._adapter_dir / name, self._adapter_dir / f".{name}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        source.save_adapter(aside)
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        self._load(name)
        before, self._loaded, self.version = self._loaded, name, version
        if before is not None:
            self._post("/v1/unload_lora_adapter", {"lora_name": before}, already="not found")
            shutil.rmtree(self._adapter_dir / before, ignore_errors=True)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int = 1,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_new_tokens: int = 1024,
        seed: int = 0,
    ) -> list[list[Completion]]:
        """``n`` completions of every prompt, in order; each prompt has a seed of its own. Raises
        ``ProviderError``.
        """
        asked = n if temperature > 0 else 1  # greedy completions are all the same, and vLLM refuses to make several

        def one(index: int) -> list[Completion]:
            prompt = list(prompts[index])
            body = {
                "model": self._loaded or self._base_model,
                "prompt": prompt,
                "n": asked,
                "temperature": temperature,
                "top_p": top_p,
                "top_k": top_k if top_k > 0 else -1,
                "max_tokens": max_new_tokens,
                # Said outright, or the model's generation_config would bend the distribution unseen.
                "repetition_penalty": 1.0,
                "min_p": 0.0,
                "logprobs": 1,
                "return_token_ids": True,
                "skip_special_tokens": False,
                "seed": (seed + index) % 2**31,
            }
            reply = self._complete(body)
            if reply.get("model") not in (None, body["model"]):
                raise ProviderError(f"{self._url} answered with model {reply['model']!r} instead of {body['model']!r}")
            choices = sorted(reply["choices"], key=lambda c: int(c["index"]))
            if len(choices) != asked:
                raise ProviderError(f"{self._url} gave {len(choices)} completions instead of {asked}")
            return [self._completion(prompt, c) for c in choices] * (n // asked)

        with ThreadPoolExecutor(max(1, min(self._concurrency, len(prompts)))) as pool:
            return list(pool.map(one, range(len(prompts))))

    def _load(self, name: str) -> None:
        path = str((self._adapter_dir / name).resolve())
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, already="already")

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply; where the server has lost the adapter, one of the waiting threads loads it again."""
        reloads = self._reloads
        try:
            return self._post("/v1/completions", body)
        except _NotFound:
            if self._loaded is None:
                raise
        with self._reloading:
            if self._reloads == reloads:
                logger.warning("%s no longer has %s, loading it again", self._url, self._loaded)
                self._load(self._loaded)
                self._reloads += 1
        return self._post("/v1/completions", body)

    def _completion(self, prompt: list[int], choice: dict[str, Any]) -> Completion:
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(ids) != len(logprobs):
            raise ProviderError(
                f"{self._url} returned no token ids with log-probs; upgrade the server "
                "(return_token_ids needs vLLM >= 0.10.2)"
            )
        if any(p is None or not math.isfinite(p) for p in logprobs):
            raise ProviderError(
                f"{self._url} returned a log-prob that is not finite; check --logprobs-mode and the model"
            )
        stopped = choice["finish_reason"] == "stop"
        # vLLM keeps the end-of-sequence id among token_ids; the text is made here so that both engines agree
        # on it.
        body = ids[:-1] if stopped else ids
        return Completion(
            text=str(self._tokenizer.decode(body)),
            prompt_ids=tuple(prompt),
            token_ids=tuple(int(i) for i in ids),
            logprobs=tuple(float(p) for p in logprobs),
            finish_reason="stop" if stopped else "length",
            policy_version=self.version,
        )

    def _post(self, path: str, body: dict[str, Any], already: str | None = None) -> dict[str, Any]:
        """The decoded reply; retries what may pass. An error whose text contains ``already`` counts as
        success.
        """
        request = urllib.request.Request(
            self._url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._api_key}"},
        )
        problem, tries, given_up = "", 0, time.monotonic() + self._restart_s
        while tries <= self._max_retries:
            if problem:
                time.sleep(min(0.5 * 2**tries, 10.0))
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    text = response.read().decode()
            except urllib.error.HTTPError as error:
                detail = error.read().decode(errors="replace")[:300]
                if already is not None and already in detail:
                    return {}
                problem = f"HTTP {error.code}: {detail}"
                if error.code in (401, 403, 404):
                    kind = _NotFound if error.code == 404 else ConfigError
                    raise kind(
                        f"{self._url}{path}: {problem}. Check the address, the key and the model "
                        f"{self._base_model!r}; adapters need --enable-lora "
                        "and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
                    ) from error
                if error.code < 500 and error.code not in (408, 409, 429):
                    break
            except OSError as error:
                problem = f"{type(error).__name__}: {error}"
                refused = isinstance(getattr(error, "reason", error), ConnectionError)
                if refused and self._answered and time.monotonic() < given_up:
                    continue  # no server there now: a restart takes minutes, and costs no try
            except http.client.HTTPException as error:  # it went away in the middle of its answer
                problem = f"{type(error).__name__}: {error}"
            else:
                self._answered = True
                return _decoded(text)
            tries += 1
        raise ProviderError(f"{self._url}{path} did not answer usefully: {problem}")


class _NotFound(ConfigError):
    """The server is there, but not what was asked of it."""


def _decoded(text: str) -> dict[str, Any]:
    """vLLM answers adapter requests with plain text."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
