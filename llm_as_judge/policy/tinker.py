"""A policy behind a server of the Tinker API (Thinking Machines, SkyRL, OpenRL), which samples and trains it.

One object is engine, encoder and optimiser, because one server owns all three; ``rl.tinker`` computes what it learns.
Servers differ silently, so what can be measured is measured before the first step: whether losses are summed or
averaged, whether gradients are clipped, the adapter's scale and its modules. Needs the extra ``tinker``.

Never sample with an older sampler after a newer one: SkyRL's JAX back end has one place for training and sampling.
"""

import atexit
import copy
import itertools
import json
import os
import re
import secrets
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, GenerationConfig

from llm_as_judge.config.endpoints import DEFAULT_API_KEY
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, ProviderError, refusing, without_key
from llm_as_judge.files import read_json, write_json
from llm_as_judge.llm.client import Usage
from llm_as_judge.policy.chat import Encoder, completion_of
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.policy.shareable import why_not_positions
from llm_as_judge.policy.weights import end_ids, load_tokenizer
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Completion, OnCompletion

S = TypeVar("S")
T = TypeVar("T")

#: In a checkpoint: the server's paths of the state and of the sampler's weights.
STATE = "tinker.json"
_WEIGHTS = "adapter_model.safetensors"
_MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
_ALPHA = 32.0  # of Thinking Machines and SkyRL


class TinkerPolicy(Encoder):
    """Samples from the base model or, if given, from ``adapter`` (a folder with ``STATE``), until ``share`` or ``load``
    begins the training of the run's own adapter.

    Methods raise ``ConfigError`` for what the server refuses or cannot do, ``ProviderError`` if it does not answer.
    """

    def __init__(self, config: Config, adapter: Path | None = None, say: Callable[[str], None] = lambda line: None):
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        try:
            import tinker
        except ImportError as error:
            cure = "python -m pip install 'llm-as-judge[tinker]'"
            raise ConfigError(f"generation.engine=tinker needs Python 3.11 and a package: {cure}") from error
        self.config, self.name, self._say, self._types = config.engine, config.base_model.path, say, tinker.types
        self._model, self._seed, path = config.model, config.training.seed, locate_weights(self.name)
        with refusing(ConfigError, f"{path} has no tokenizer and config.json", "give a folder or a hub id with both"):
            self.tokenizer, self._sizes = load_tokenizer(path), AutoConfig.from_pretrained(path).get_text_config()
        self._generation: Any = None
        with suppress(OSError):  # not every model has the file
            self._generation = GenerationConfig.from_pretrained(path)
        self.steps, self.version, self.learning_rate, self._used = 0, 0, config.training.learning_rate, Counter[str]()
        self._url, self._key = config.engine.base_url.rstrip("/"), config.engine.api_key
        self._key = "tml-local" if self._key == DEFAULT_API_KEY else self._key
        self._training: Any = None
        self._checked: Any = None  # ``_training`` after ``share``
        self._patience, self._paused = config.training.patience_s, False
        self._service: Any = self._ask(lambda: tinker.ServiceClient(base_url=self._url, api_key=self._key))
        served = {m.model_name: m for m in self._ask(self._service.get_server_capabilities).supported_models}
        if self.name not in served:  # SkyRL would train the model it has, whatever a request says
            raise ConfigError(f"{self._url} serves {', '.join(map(str, served)) or 'no model'}, not {self.name}")
        if (longest := served[self.name].max_context_length) and config.longest_episode > longest:
            longer = f"{self._url} takes {longest} tokens, an episode has up to {config.longest_episode}"
            raise ConfigError(f"{longer}; lower training.prompt_max_length or training.response_max_length")
        atexit.register(vars(self).clear)  # else the SDK's connections end too late, with an error
        self._synced: int | None = None
        start = adapter or config.model.adapter
        weights = {"model_path": _read(start)["sampler"]} if start else {"base_model": self.name}
        self._sampler = self._first = self._ask(lambda: self._service.create_sampling_client(**weights))

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return end_ids(self._generation, self.tokenizer)

    def usage(self) -> Mapping[str, Usage]:
        """Count tokens that were read (trained ones included) and sampled, and their cost by the configured prices."""
        read, written, trained = (self._used[kind] for kind in ("read", "written", "trained"))
        cost = self.config.cost(read, written, trained)
        return {"policy": Usage(self._used["requests"], read + trained, written, cost)}

    def sync(self, policy: object, version: int) -> None:
        """Give the sampler the current weights, if they are trained."""
        if self._training is not None and self._synced != version:
            self._sampler = self._ask(self._training.save_weights_and_get_sampling_client)
            self._synced = self.version = version

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int = 1, *, sampling: Sampling = PLAIN, max_new_tokens: int = 1024,
        seed: int = 0, on_completion: OnCompletion | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """Sample ``n`` completions of every prompt, in order; ``on_completion`` is called when a prompt's are complete.

        Log-probs are those of the plain distribution, also at other temperatures.
        """
        if reason := why_not_positions(self._sizes, max(map(len, prompts), default=0) + max_new_tokens):
            raise ConfigError(f"{reason}; lower training.prompt_max_length or training.response_max_length")
        sampler, types = self._sampler, self._types

        def one(place: int) -> list[Completion]:
            # A server gives sample k of a request the noise of seed + k: consecutive seeds would share it.
            params = types.SamplingParams(
                max_tokens=max_new_tokens, seed=derived_seed(seed, place), stop=sorted(self.eos_token_ids),
                temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k or -1,
            )  # fmt: skip
            prompt = list(prompts[place])
            reply = self._ask(lambda: sampler.sample(types.ModelInput.from_ints(prompt), n, params).result())
            made = list[Completion]()
            for s in reply.sequences:
                tokens, logprobs = list(s.tokens), self._finite(s.logprobs or (), len(s.tokens)).tolist()
                made += [completion_of(self.tokenizer, prompt, tokens, logprobs, s.stop_reason == "stop", self.version)]
            if len(made) != n:
                raise ProviderError(f"{self._url} returned {len(made)} completions instead of {n}")
            for member, completion in enumerate(made if on_completion else ()):
                on_completion(place, member, completion)  # type: ignore[misc]
            return made

        groups = self._together(one, range(len(prompts)))
        self._used["read"] += sum(map(len, prompts))
        self._used["written"] += sum(len(c.token_ids) for group in groups for c in group)
        return groups

    def logprobs(self, completions: Sequence[Completion]) -> list[Tensor]:
        """Compute log-probs [T] of the completions' tokens by the weights that are trained."""
        data = [self._datum(c, weights=c.sampled) for c in completions]
        found = self._ask(lambda: self._training.forward(data, "cross_entropy").result()).loss_fn_outputs
        return [self._scored(c, out["logprobs"].tolist()) for c, out in zip(completions, found, strict=True)]

    def reference(self, completions: Sequence[Completion]) -> list[Tensor]:
        """Compute log-probs [T] by the model that the training started from."""

        def one(completion: Completion) -> list[float]:
            ids = self._types.ModelInput.from_ints([*completion.prompt_ids, *completion.token_ids])
            return list(self._ask(lambda: self._first.compute_logprobs(ids).result()))

        return [self._scored(*scored) for scored in zip(completions, self._together(one, completions), strict=True)]

    def step(
        self, completions: Sequence[Completion], current: Sequence[Tensor], advantages: Tensor,
        learning_rate: float, clip: float, weight_decay: float = 0.0,
    ) -> float | None:  # fmt: skip
        """Take an optimiser step along the gradient of the sum of ``advantages`` [B, T] x log-prob; returns the
        gradient's norm if the server reports it.

        ``current`` are the log-probs of the weights as they are, so that the server's ratio is 1. Not asked again if it
        fails: what the server has done is not known then.
        """
        data = []
        for completion, now, own in zip(completions, current, advantages, strict=True):
            more = {}
            if self._reduction == "mean":  # undone: a row's loss is divided by its weights, their sum by the rows
                own, more = own * completion.written * len(completions), {"weights": completion.sampled}
            data.append(self._datum(completion, logprobs=now.tolist(), advantages=own[: len(now)].tolist(), **more))
        adam = self._types.AdamParams(
            learning_rate=learning_rate, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=weight_decay, grad_clip_norm=clip
        )

        def both() -> Any:
            backward = self._training.forward_backward(data, "importance_sampling")
            step = self._training.optim_step(adam)
            backward.result()
            return step.result()

        metrics = self._ask(both, again=False).metrics or {}
        self._used["trained"] += sum(len(c.prompt_ids) + len(c.token_ids) for c in completions)
        self.steps, self.learning_rate = self.steps + 1, learning_rate
        return next((float(value) for name, value in metrics.items() if "grad_norm" in name), None)

    def share(self) -> None:
        """Begin the training, unless ``load`` has, and check what the server makes of it."""
        if self._training and self._training is self._checked:
            return
        new = self._training is None and not self._model.adapter
        if self._training is None and (start := self._model.adapter):
            state = _read(start)["state"]
            self._training = self._ask(lambda: self._service.create_training_client_from_state(state))
        elif self._training is None:
            self._training = self._new(self._model.lora_rank, self._seed)
        with tempfile.TemporaryDirectory() as folder:
            found = self._adapter(Path(folder), self._saved_sampler())
            scale = _scale(Path(folder) / _WEIGHTS) if found and new else 1.0
        if not 0.9 < scale < 1.1:
            rate = f"learning_rate={self.learning_rate:g} acts like {scale * self.learning_rate:.2g}"
            self._say(f"{self._url} draws LoRA's first matrices {scale:.1f} times as large as PEFT does: {rate}")
        if (alpha := found.get("lora_alpha", _ALPHA)) != self._model.lora_alpha:
            own = f"model.lora_alpha={self._model.lora_alpha:g}"
            raise ConfigError(f"{own}, but {self._url} scales adapters by {alpha:g}; set it so")
        if lacking := sorted(_MODULES - set(found.get("target_modules", _MODULES))):
            raise ConfigError(f"{self._url} has no adapter on {', '.join(lacking)}; train on another server")
        self._measure()
        self._checked = self._training

    def save(self, folder: Path) -> None:
        """Write ``STATE`` and, where the server lets it be downloaded, the adapter."""
        name = f"step-{self.steps}-{secrets.token_hex(3)}"
        state, sampler = self._ask(lambda: self._training.save_state(name).result().path), self._saved_sampler()
        about = {"state": state, "sampler": sampler, "base_model": self.name, "reduction": self._reduction}
        write_json(folder / STATE, about)
        self._adapter(folder, sampler)

    def load(self, folder: Path) -> None:
        state, create = _read(folder)["state"], self._service.create_training_client_from_state_with_optimizer
        self._training, self._synced = self._ask(lambda: create(state)), None

    def _new(self, rank: int, seed: int) -> Any:
        make = self._service.create_lora_training_client
        return self._ask(lambda: make(self.name, rank=rank, seed=seed, train_unembed=False))

    def _saved_sampler(self) -> str:
        """Save the current weights for sampling under a new name; returns the server's path."""
        name = f"sampler-{self.steps}-{secrets.token_hex(3)}"
        return str(self._ask(lambda: self._training.save_weights_for_sampler(name).result().path))

    def _measure(self) -> None:
        """Find out how the server reduces losses, and whether it clips gradients, by steps of another adapter.

        ``probe`` is this policy but for the adapter that it trains, and for its count of steps.
        """
        self._reduction = "sum"
        probe, row, up = copy.copy(self), Completion("", (1, 2, 3), (4, 5, 6), (), "stop"), torch.ones(1, 3)
        probe._training = self._new(1, 0)
        before = probe.logprobs([row])
        probe.step([row], before, up, learning_rate=1e-2, clip=1e-12)  # moves nothing if it is clipped
        now = probe.logprobs([row])
        if float((now[0] - before[0]).abs().max()) > 1e-3:
            self._say(f"{self._url} ignores training.max_grad_norm: gradients are not clipped")
        one, two = (probe.step([row] * k, now * k, up.expand(k, 3), learning_rate=0.0, clip=0.0) for k in (1, 2))
        if one is None or two is None:
            self._say("the server reports no gradient norm: its loss is taken to be a sum over rows")
        elif two < 1.5 * one:
            self._reduction = "mean"

    def _adapter(self, folder: Path, sampler: str) -> dict[str, Any]:
        """Download the adapter of ``sampler`` for PEFT into ``folder``; returns its configuration, {} without one."""
        run, _, name = sampler.removeprefix("tinker://").partition("/")
        address = f"{self._url}/api/v1/training_runs/{run}/checkpoints/{name.rpartition('/')[2]}/archive"
        request = urllib.request.Request(address)
        request.add_unredirected_header("X-API-Key", self._key)
        weights, about = folder / _WEIGHTS, folder / "adapter_config.json"
        try:
            with (
                urllib.request.urlopen(request, timeout=self.config.timeout_s) as reply,
                tarfile.open(fileobj=reply, mode="r|*") as archive,
            ):
                for member in archive:
                    place = folder / Path(member.name).name
                    if place in (weights, about) and (file := archive.extractfile(member)):
                        place.write_bytes(file.read())
            with safe_open(str(weights), "pt") as tensors:
                found = re.findall(r"(\w+)\.lora_A", " ".join(tensors.keys()))
            # SkyRL names no modules, and PEFT would guess, wrongly.
            own = {"target_modules": sorted(set(found)), "base_model_name_or_path": self.name, "task_type": "CAUSAL_LM"}
            config: dict[str, Any] = {**json.loads(about.read_text()), **own}
            write_json(about, config)
        except (OSError, tarfile.TarError, ValueError, SafetensorError) as error:
            for place in (weights, about):
                place.unlink(missing_ok=True)
            self._say(f"{self._url} gives back no adapter for PEFT ({error}); its state stays on the server")
            return {}
        return config

    def _datum(self, completion: Completion, **values: Sequence[float]) -> Any:
        """Make a training row: position i predicts token i + 1; positions of the prompt count nothing."""
        whole, before = [*completion.prompt_ids, *completion.token_ids], len(completion.prompt_ids) - 1
        padded = {name: np.array([0.0] * before + list(own), np.float32) for name, own in values.items()}
        inputs: dict[str, Any] = {"target_tokens": np.array(whole[1:], np.int64), **padded}
        return self._types.Datum(self._types.ModelInput.from_ints(whole[:-1]), loss_fn_inputs=inputs)

    def _scored(self, completion: Completion, found: Sequence[float]) -> Tensor:
        """Take log-probs of a completion's tokens, the last of its sequence: some servers omit those of the first."""
        self._used["read"] += len(completion.prompt_ids) + len(completion.token_ids)
        return torch.from_numpy(self._finite(found[-len(completion.token_ids) :], len(completion.token_ids)))

    def _finite(self, logprobs: Sequence[float], tokens: int) -> Any:
        found = np.array(logprobs, float)
        if not tokens or len(found) != tokens or not np.isfinite(found).all():
            raise ProviderError(f"{self._url} returned no finite log-prob for each token; see the server's log")
        return found

    def _together(self, ask: Callable[[S], T], asked: Iterable[S]) -> list[T]:
        with ThreadPoolExecutor(self.config.concurrency) as threads:
            return list(threads.map(ask, asked))

    def _ask(self, work: Callable[[], T], *, again: bool = True) -> T:
        """Run ``work`` in a thread of its own: the SDK waits without a limit for a server that is gone.

        Once the training has begun, a server that fails too often is waited for, ``training.patience_s`` in total.
        """
        left = self._patience * (again and self._training is not None)
        for attempt in itertools.count(1):
            self._used["requests"] += 1
            result = Future[T]()
            threading.Thread(target=_into, args=(result, work), daemon=True).start()
            try:
                found = result.result(self.config.timeout_s)
                self._paused = False
                return found
            except Exception as error:  # of many types: the SDK's, its HTTP library's, ValueError, TimeoutError
                failure, status = error, getattr(error, "status_code", 0)
            wait, retries = min(2.0 ** (attempt - 2), 60.0), self.config.max_retries * again
            if isinstance(failure, TimeoutError) or 400 <= status < 500 or (attempt > retries and left <= 0):
                break
            if attempt > retries:
                if not self._paused:
                    self._say(f"paused: {self._url} fails ({failure}); it is waited for, {left:.0f} s at most")
                self._paused, wait = True, min(wait, left)
                left -= wait
            time.sleep(wait)
        what = " ".join(str(failure).split()) or f"no answer within {self.config.timeout_s:g} s"
        message = without_key(f"{self._url}: {what}", self._key)
        if status in (401, 403):
            raise ConfigError(f"{message}; check engine.api_key") from failure
        cure = "it refuses what the run asks for" if status == 400 else "is its version one that this SDK can talk to?"
        raise ProviderError(f"{message}; {cure}", "server") from failure


def _into(result: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:
        result.set_exception(error)


def _scale(adapter: Path) -> float:
    """Return the spread of LoRA's first matrices [rank, in] as a multiple of PEFT's, whose variance is 1 / (3 in)."""
    with safe_open(str(adapter), "pt") as tensors:
        first = [tensors.get_tensor(name).float() for name in tensors.keys() if "lora_A" in name]  # noqa: SIM118
    return float(torch.stack([matrix.var() * 3 * matrix.shape[1] for matrix in first]).mean().sqrt())


def _read(folder: Path) -> dict[str, str]:
    """Read the server's paths in a checkpoint. Raises ``ConfigError`` if another engine wrote it."""
    if not (found := read_json(folder / STATE)):
        raise ConfigError(
            f"{folder} has no {STATE}: a server of the Tinker API starts from its own states, not from an adapter; "
            "give a checkpoint that generation.engine=tinker wrote, or model.adapter=null"
        )
    return found
