"""Our rollout worker under TRL's own ``AsyncGRPOTrainer``, its queue, batcher and loss.

The trainer's attention is a CUDA kernel; here the same function is computed by torch, a segment after the other.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.knowing import Knowing

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy

trl = pytest.importorskip("trl", reason="trl is not installed; make peers installs it")

from peft import LoraConfig  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, packing  # noqa: E402
from trl.experimental.async_grpo.async_grpo_trainer import (  # noqa: E402
    DataCollatorForRollout,
    RolloutQueueDataset,
    TokenBudgetBatcher,
)

from llm_as_judge.integrations.trl import dataset, lora_arguments  # noqa: E402
from llm_as_judge.integrations.trl_async import RolloutWorker  # noqa: E402

STEPS = 3


class Shared:
    """A policy that is sampled from by one caller at a time, and takes the trainer's weights in between."""

    def __init__(self, config: Config) -> None:
        self.policy = Policy.load(locate_weights(config.base_model.path), config.model)
        self._engine, self._lock = LocalEngine(self.policy, self.policy.tokenizer), Lock()
        self.parameters = {n.replace(".base_layer", ""): p for n, p in self.policy.base.named_parameters()}
        self.asked: list[int] = []  # versions

    def of(self, version: int) -> Shared:
        self.asked.append(version)
        return self

    def generate(self, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            return self._engine.generate(*arguments, **named)

    def sync(self, policy: object, version: int) -> None: ...

    # TRL's WeightTransferProtocol
    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        with self._lock, torch.no_grad():
            for name, tensor in iterator:
                self.parameters[name].copy_(tensor)


def varlen(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *_: Any, softmax_scale: float, **__: Any) -> Any:
    """Causal attention [N, heads, width] of each segment to its path, whose end is the segment itself."""
    parts = []
    for i in range(len(starts_q) - 1):
        queries = q[starts_q[i] : starts_q[i + 1]].transpose(0, 1)
        keys, values = (x[starts_k[i] : starts_k[i + 1]].transpose(0, 1) for x in (k, v))
        rows, columns = queries.shape[1], keys.shape[1]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                queries[None], keys[None], values[None], seen, scale=softmax_scale, enable_gqa=True
            )[0].transpose(0, 1)
        )
    return torch.cat(parts)


def quick(config: Callable[..., Config], *changes: str) -> Config:
    return config(f"max_steps={STEPS}", "rollout_batch_size=2", "scale_rewards=group", *changes)


def known(executor: Knowing, settings: Config, count: int = 100) -> None:
    for problem in open_problems(settings).sampler.sample(count):
        executor.tell(problem)


def test_trls_trainer_trains_on_our_samples(
    executor: Knowing, config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = quick(config)
    known(executor, settings)
    shared = Shared(settings)
    before = {name: parameter.detach().clone() for name, parameter in shared.parameters.items()}
    worker = RolloutWorker(settings, shared.of)
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=varlen))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "none that TRL knows")  # for a metric alone
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = AsyncGRPOTrainer(
            model=locate_weights(settings.base_model.path),
            args=AsyncGRPOConfig(
                output_dir="out",
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                disable_tqdm=True,
                save_strategy="no",
                max_steps=STEPS,
                learning_rate=1e-2,
                token_budget=3000,
                gradient_accumulation_steps=1,
            ),
            train_dataset=dataset(settings, 4),
            processing_class=shared.policy.tokenizer,
            peft_config=LoraConfig(**lora_arguments(settings)),
            rollout_worker=worker,
            weight_transfer=shared,
        )
        trainer.train()
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    rewards = [entry["reward"] for entry in log]
    assert len(log) == STEPS
    assert log[0]["ratio"] == pytest.approx(1, abs=1e-3), "log-probs of other tokens, positions or weights"
    assert shared.asked == sorted(shared.asked) and shared.asked[-1] >= STEPS - 1
    assert max(entry["sample/staleness_max"] for entry in log) <= 4
    assert 0 < log[0]["workflow/accuracy"] < 1 and log[0]["workflow/unscored"] == 0
    assert all(math.isfinite(reward) for reward in rewards)
    assert all(entry["grad_norm"] > 0 for entry in log)
    moved = [name for name, now in shared.parameters.items() if not torch.equal(now.detach(), before[name])]
    assert moved == ["model.layers.3.mlp.down_proj.weight"], "the layer that has an adapter, and no other"
    with pytest.raises(RuntimeError, match="has ended"):
        worker.check_health(60)


def taken(worker: RolloutWorker, count: int, seconds: float = 60) -> list[Any]:
    until, found = time.monotonic() + seconds, list[Any]()
    while len(found) < count and time.monotonic() < until:
        worker.check_health(30)
        if worker.rollout_buffer.qsize():
            found.append(worker.rollout_buffer.get())
        time.sleep(0.02)
    return found


def test_samples_hold_the_very_tokens_and_pass_trls_batcher(executor: Knowing, config: Callable[..., Config]) -> None:
    settings = quick(config)
    known(executor, settings)
    shared = Shared(settings)
    worker = RolloutWorker(settings, shared.of, groups=3)
    worker.start()
    try:
        time.sleep(0.1)
        samples = taken(worker, 16)
        deadline = time.monotonic() + 30
        while worker.rollout_buffer.qsize() < 24 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        assert worker.rollout_buffer.qsize() <= 24, "no more groups than asked for wait for the trainer"
    finally:
        worker.stop()
    groups: dict[int, list[Any]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
        text = shared.policy.tokenizer.decode(sample.input_ids[sample.completion_mask == 1], skip_special_tokens=True)
        assert text == sample.completion[-1]["content"]
        scored = shared.policy.base(torch.tensor(sample.input_ids)[None]).logits[0].log_softmax(-1)
        places = np.flatnonzero(sample.completion_mask)
        expected = scored[places - 1, sample.input_ids[places]].detach().numpy()
        assert np.allclose(expected, sample.old_log_probs[places], atol=1e-3)
    for members in (g for g in groups.values() if len(g) == 8):
        rewards = np.array([s.metrics["reward"] for s in members])
        spread = rewards.std(ddof=1) + 1e-4 if np.ptp(rewards) > 1e-3 else np.inf
        assert np.allclose([s.advantage for s in members], (rewards - rewards.mean()) / spread, atol=1e-5)
    again = RolloutWorker(settings, shared.of)
    for sample in samples:
        again.rollout_buffer.put(sample)
    metrics: dict[str, list[Any]] = defaultdict(list)
    source = RolloutQueueDataset(again.rollout_buffer, lambda: 0, again.check_health, 60, metrics)
    rows = next(iter(TokenBudgetBatcher(source, 1, 2000, metrics)))
    packed = DataCollatorForRollout(0, metrics=metrics, token_budget=2000)([rows])
    members = rows[0].samples
    assert packed["token_index"].numel() == sum(int(m["completion_mask"].sum()) for m in members)
    assert packed["input_ids"].numel() < sum(len(m["input_ids"]) for m in members) / 2, "prompts are shared"


def test_unscored_rollouts_are_left_out_and_a_long_outage_ends_the_worker(
    executor: Knowing, config: Callable[..., Config]
) -> None:
    settings = quick(config, "max_unscored=1")
    shared = Shared(settings)
    worker = RolloutWorker(settings, shared.of, groups=1)
    worker.start()
    try:
        before, (unscored, rollouts) = taken(worker, 8), worker.metrics_queue.get(timeout=60)["workflow/unscored"]
        assert len(before) == rollouts == 8 and unscored == 0
        executor.down = True
        groups = {sample.group_id for sample in taken(worker, 20, seconds=15)}
        told = [worker.metrics_queue.get_nowait()["workflow/unscored"] for _ in range(worker.metrics_queue.qsize())]
        assert max(told)[0] > 4 and len(groups) <= len(told)
    finally:
        worker.stop()
    executor.down = False
    worker = RolloutWorker(quick(config, "max_unscored=0.1", "patience_s=0"), shared.of, groups=1)
    worker.start()
    try:
        taken(worker, 8)
        executor.down = True
        with pytest.raises(RuntimeError, match="could not be scored"):
            taken(worker, 10_000)
    finally:
        worker.stop()


def test_batch_scaling_is_refused_and_a_worker_that_stands_still_is_noticed(config: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match="scale_rewards"):
        RolloutWorker(config("scale_rewards=batch"), lambda version: None)  # type: ignore[arg-type, return-value]
    worker = RolloutWorker(config("scale_rewards=none"), lambda version: None)  # type: ignore[arg-type, return-value]
    time.sleep(0.02)
    with pytest.raises(RuntimeError, match="stands still"):
        worker.check_health(0.01)
