"""A rollout worker for TRL's ``AsyncGRPOTrainer`` (1.16, experimental): workflows are run and judged while it updates.

    worker = RolloutWorker(config, engine_of=vllm_engines(config, adapters="out/.vllm_lora"))
    AsyncGRPOTrainer(model=..., args=AsyncGRPOConfig(output_dir="out"), train_dataset=dataset(config),
                     peft_config=LoraConfig(**lora_arguments(config)), rollout_worker=worker).train()

Groups are sampled, run and judged beside each other, as many as ``groups`` says, where TRL's own worker scores one
group after the other. A rollout that nobody could score is left out of its group. TRL drops samples more than
``max_staleness`` versions old, which are those of long workflows: keep ``groups`` below that many steps' worth.
"""

from __future__ import annotations

import asyncio
import math
import queue
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.integrations.background import Background
from llm_as_judge.llm.client import derived_seed
from llm_as_judge.policy.chat import chat_ids, messages_for
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect
from llm_as_judge.types import Completion, Problem, Prompt
from llm_as_judge.workflow.prompt import Layer1

try:
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
except ImportError as error:
    raise ConfigError(f"TRL is an extra: python -m pip install 'llm-as-judge[trl]' ({error})") from error

#: Draws of a problem whose prompt fits.
MAX_REDRAWS = 20
_LOOK_S = 0.2
_METRICS = 4096


def vllm_engines(
    config: Config, adapters: str | Path | None, name: str = "trl-policy", model: str | None = None
) -> Callable[[int], Engine]:
    """The engine of each version of the policy, on the vLLM server of the ``engine`` section.

    ``adapters`` is the folder into which TRL writes them (``output_dir/.vllm_lora``), each as ``name-vN``; None where
    TRL sends whole weights. ``model`` is the base model's name on the server. Raises ``ConfigError`` without an
    address: TRL has to know it, too.
    """
    if not config.engine.base_url:
        raise ConfigError("engine.base_url is empty; give the address of the vLLM server that TRL sends its weights to")
    path = locate_weights(config.base_model.path)
    served = model or config.base_model.path
    engine = VLLMEngine(config.engine, served, Path(adapters or "."), load_tokenizer(path))
    return lambda version: engine.serving(served if adapters is None else f"{name}-v{version}", version)


class RolloutWorker:
    """TRL's ``RolloutWorkerProtocol``, in threads of the trainer's process.

    Args:
        config: the environment, the prompts and how completions are sampled.
        engine_of: what samples the completions of a version of the policy; called in a thread for each group.
        groups: groups under way or waiting for the trainer; by default two steps' worth.

    Raises ``ConfigError`` for ``scale_rewards: batch``, for there is no batch here.
    """

    def __init__(self, config: Config, engine_of: Callable[[int], Engine], groups: int | None = None) -> None:
        if config.training.scale_rewards == "batch":
            raise ConfigError("training.scale_rewards=batch needs whole batches; set group or none")
        self.config = config
        self.engine_of = engine_of
        self.groups = groups or 2 * config.training.rollout_batch_size
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, float | tuple[float, float]]] = queue.Queue(_METRICS)
        self.version = 0
        self.alive = time.monotonic()
        self._background: Background | None = None
        self._running: Future[None] | None = None

    def start(self) -> None:
        if self._background is None:
            self.alive = time.monotonic()
            self._background, self._stream = Background("rollout worker"), _Stream(self)
            self._running = self._background.submit(self._stream.run())

    def stop(self) -> None:
        """Ends what is under way and closes the services."""
        background, self._background = self._background, None
        if background is not None:
            background.submit(self._stream.end()).result()
            background.close()

    def update_model_version(self, model_version: int) -> None:
        self.version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raises ``RuntimeError`` where the worker has ended, or stands still for ``stale_after_s``."""
        if self._running is not None and self._running.done():
            cause = None if self._running.cancelled() else self._running.exception()
            raise RuntimeError(f"the rollout worker has ended: {cause or 'it was stopped'}") from cause
        if (age := time.monotonic() - self.alive) > stale_after_s:
            raise RuntimeError(f"the rollout worker stands still for {age:.0f} s")


class _Stream:
    """The worker's event loop: groups in, samples out, until it is cancelled."""

    def __init__(self, worker: RolloutWorker) -> None:
        config = worker.config
        self._worker, self._config = worker, config
        self._tokenizer = load_tokenizer(locate_weights(config.base_model.path))
        self._prompt = Layer1(config.workflow)
        self._sampler = open_problems(config, measured=False).sampler
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Raises what a group raised: ``InfrastructureError`` where too little can be scored for too long."""
        self._task = asyncio.current_task()
        worker, under_way, number = self._worker, set[asyncio.Future[None]](), 0
        with ThreadPoolExecutor(worker.groups, "sampling") as threads:
            async with open_services(self._config) as services:
                try:
                    while True:
                        worker.alive = time.monotonic()
                        while len(under_way) + self._waiting() < worker.groups:
                            under_way.add(asyncio.ensure_future(self._group(number, services.training, threads)))
                            number += 1
                        if under_way:
                            done, under_way = await asyncio.wait(
                                under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED
                            )
                            for task in done:
                                task.result()
                        else:
                            await asyncio.sleep(_LOOK_S)
                finally:
                    for task in under_way:
                        task.cancel()
                    await asyncio.gather(*under_way, return_exceptions=True)

    async def end(self) -> None:
        """Returns when everything is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _waiting(self) -> int:
        """Groups that the trainer has not taken yet."""
        return -(-self._worker.rollout_buffer.qsize() // self._config.training.num_return_sequences_in_group)

    async def _group(self, number: int, parts: RolloutParts, threads: ThreadPoolExecutor) -> None:
        version, seed = self._worker.version, derived_seed(self._config.training.seed, number)
        problem, prompt, ids = self._draw()
        sampled = await asyncio.get_running_loop().run_in_executor(threads, self._sample, version, ids, seed)
        completions = [replace(completion, prefill=prompt.prefill) for completion in sampled]
        (group,) = credit(
            await collect([problem], [completions], parts, seed=seed), self._config.training.scale_rewards
        )
        for sample in self._samples(number, version, prompt, group):
            self._worker.rollout_buffer.put(sample)
        with suppress(queue.Full):  # a trainer that reads no metrics stops nobody
            self._worker.metrics_queue.put_nowait(_metrics(group))

    def _draw(self) -> tuple[Problem, Prompt, list[int]]:
        """A problem whose prompt fits. Raises ``DataError`` where none is found."""
        limit = self._config.training.prompt_max_length
        for _ in range(MAX_REDRAWS):
            (problem,) = self._sampler.sample(1)
            prompt = self._prompt(problem.question)
            if len(ids := chat_ids(self._tokenizer, prompt)) <= limit:
                return problem, prompt, ids
        raise DataError(f"{MAX_REDRAWS} prompts in a row have over training.prompt_max_length={limit} tokens; raise it")

    def _sample(self, version: int, prompt: list[int], seed: int) -> list[Completion]:
        training, generation = self._config.training, self._config.generation
        (completions,) = self._worker.engine_of(version).generate(
            [prompt],
            training.num_return_sequences_in_group,
            temperature=generation.temperature,
            top_p=generation.top_p,
            top_k=generation.top_k,
            max_new_tokens=training.response_max_length,
            seed=seed,
        )
        return completions

    def _samples(self, number: int, version: int, prompt: Prompt, credited: CreditedGroup) -> Iterator[RolloutSample]:
        """One for each rollout with a reward, on the very tokens that were sampled."""
        messages = messages_for(self._tokenizer, prompt)
        known = [reward for reward in credited.rewards if not math.isnan(reward)]
        spread = float(np.std(known)) if known else math.nan
        for rollout, reward, advantage in zip(
            credited.group.rollouts, credited.rewards, credited.advantages, strict=True
        ):
            if math.isnan(reward):
                continue
            completion = rollout.completion
            before, sampled = len(completion.prompt_ids), len(completion.token_ids)
            yield RolloutSample(
                prompt=messages,
                completion=[{"role": "assistant", "content": completion.text}],
                input_ids=np.asarray([*completion.prompt_ids, *completion.token_ids], dtype=np.int64),
                completion_mask=np.asarray([0] * before + [1] * sampled, dtype=np.int64),
                old_log_probs=np.asarray([0.0] * before + list(completion.logprobs), dtype=np.float32),
                advantage=advantage,
                model_version=version,
                group_id=number,
                metrics={"reward": reward, "reward_std": spread}
                | {f"rewards/{name}": value for name, value in rollout.reward.terms.items()},
                enqueued_at=time.time(),
            )


def _metrics(credited: CreditedGroup) -> dict[str, float | tuple[float, float]]:
    """Rates as numerator and denominator, as TRL sums them up."""
    rollouts = credited.group.rollouts
    scored = [r for r in rollouts if r.verdict.correct is not None]
    return {
        "workflow/unscored": (float(credited.unscored), float(len(rollouts))),
        "workflow/accuracy": (float(sum(r.verdict.correct is True for r in scored)), float(len(scored))),
        "workflow/valid": (float(sum(r.valid for r in rollouts)), float(len(rollouts))),
        "workflow/executor_tokens": (float(sum(r.execution.tokens for r in rollouts)), float(len(rollouts))),
    }
