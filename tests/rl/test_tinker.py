"""A policy behind a server of the Tinker API learns what ours learns; what a server lacks is refused or said."""

import asyncio
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.cli import Said
from helpers.tables import tables
from helpers.tinker_server import World, tinker_server
from helpers.tiny import CountingSampler, EchoRunner, Events, ListBuffer, prompt, ten_or_minus_five
from helpers.update_case import credited

from llm_as_judge.assembly.follow import load_together
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.commands.plan import make_plan
from llm_as_judge.commands.train import run_training
from llm_as_judge.commands.warmup import run_warmup
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config, ModelConfig, TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.pipeline import TrainerParts
from llm_as_judge.rl.ranks import Alone
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.tinker import TinkerLearner
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.rl.update import Batch, TrainingStopped, Updater
from llm_as_judge.rl.warmup import WarmUp
from llm_as_judge.types import Completion, Problem, Verdict

pytest.importorskip("tinker", reason="the SDK of the Tinker API is not installed (extra tinker)")

logging.getLogger("tinker").setLevel(logging.ERROR)  # heartbeats of clients whose server has gone
TABLES = tables(__file__)
EMBEDDED = "config/embedded.yaml"
NANO = load_config(Path(__file__).parents[2] / EMBEDDED).base_model.path
PROMPTS = [[1, 50, 2, 300, 7], [9, 1200, 44], [5, 6, 7, 8]]


def policy_of(rank: int, seed: int) -> Policy:
    return Policy.load(NANO, ModelConfig(lora_rank=rank, lora_alpha=32, device="cpu"), seed=seed)


def world(**changes: Any) -> World:
    return World(policy_of, NANO, **changes)


def config_of(url: str, *more: str) -> Config:
    settings = [
        "generation.engine=tinker", f"engine.base_url={url}", "engine.max_retries=0", "lora_alpha=32", "lora_rank=8",
        "lora_target_modules=all-linear", "training.patience_s=0",
    ]  # fmt: skip
    return load_config(Path(__file__).parents[2] / EMBEDDED, [*settings, *more])


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Closes the servers of a test; failing ones are asked again at once."""
    monkeypatch.setattr("llm_as_judge.policy.tinker.time", SimpleNamespace(sleep=lambda seconds: None))
    with ExitStack() as stack:
        yield stack


def begun(servers: ExitStack, own: World, *more: str, said: Said | None = None) -> TinkerPolicy:
    policy = TinkerPolicy(config_of(servers.enter_context(tinker_server(own)), *more), say=(said or Said()).say)
    policy.share()
    return policy


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_updates_through_a_server_are_those_of_our_own(servers: ExitStack, reduction: str) -> None:
    own, said, wrong = world(reduction=reduction, clips=reduction == "sum"), Said(), []
    served = begun(servers, own, said=said)
    assert [line for line in said.lines if "max_grad_norm" in line] == said.lines and bool(said.lines) != own.clips
    rows = [c for group in served.generate(PROMPTS, 4, max_new_tokens=24, seed=3) for c in group]
    drawn = torch.Generator().manual_seed(1)
    noisy = [
        replace(c, logprobs=tuple(p + 0.2 * float(torch.randn((), generator=drawn)) for p in c.logprobs)) for c in rows
    ]
    for name, settings in list(TABLES["updates"].items())[:: 1 if reduction == "sum" else 2]:
        training = TrainingConfig(learning_rate=1e-3, max_grad_norm=1e9, response_max_length=24, **settings)
        local = policy_of(8, 0)
        learner, ours = TinkerLearner(served), Updater(local, training)
        served._training, served.steps = None, 0
        served.share()
        before = served.logprobs(rows)
        for version in (int("stale" in name), 1 + int("stale" in name)):
            reports = [
                one.update(Batch.of([credited(noisy)], version, training), PLAIN, version) for one in (ours, learner)
            ]
        after = local.known_logprobs(rows, PLAIN, "padded", 1 << 16), served.logprobs(rows)
        changes = [torch.cat(list(found)).double() - torch.cat(before) for found in after]
        figures = [(r.loss, r.clip_fraction, r.corrected, r.grad_norm * (reduction == "sum")) for r in reports]
        alike = figures[0][:3] == pytest.approx(figures[1][:3], abs=1e-5) and served.steps == ours.optimizer.steps
        if cosine(*changes) < 0.999 or float(changes[0].norm()) < 1e-2 or not alike or not learner.unsettled:
            wrong.append((name, cosine(*changes), reports))
        if not 0.98 < float(changes[1].norm() / changes[0].norm()) < 1.02:
            wrong.append((name, "length", changes[0].norm(), changes[1].norm()))
    assert not wrong


def test_a_warm_up_through_a_server_is_that_of_our_own(servers: ExitStack) -> None:
    served, local, settings = begun(servers, world(reduction="mean")), policy_of(8, 0), WarmupConfig(sft_steps=4)
    rows = [c for group in served.generate(PROMPTS, 2, max_new_tokens=12, seed=3) for c in group]
    losses = []
    for learner in (TinkerLearner(served), Updater(local, TrainingConfig())):
        loop = WarmUp(learner, settings, TrainingConfig())
        losses.append([loop.loss(rows)])
        for learned in (rows, rows[:3], rows):
            loop.step(learned)
            losses[-1].append(loop.loss(rows))
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert losses[0][3] < losses[0][2] < losses[0][0] and served.steps == 3


def test_nan_is_never_sent_and_a_broken_gradient_stops_the_run(servers: ExitStack) -> None:
    own = world()
    served = begun(servers, own)
    rows = [c for group in served.generate(PROMPTS, 4, max_new_tokens=8, seed=3) for c in group]
    broken = [Completion("", c.prompt_ids, c.token_ids, (math.nan,) * len(c.token_ids), "stop") for c in rows]
    learner, asked = TinkerLearner(served), len(own.asked)
    with pytest.raises(TrainingStopped, match="gradient is not finite"):
        learner.update(Batch.of([credited(broken)], 0, TrainingConfig()), PLAIN, 0)
    assert [kind for kind, body in own.asked[asked:] if kind == "optim_step"] == [] and not learner.unsettled


class EvenJudge:
    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        return Verdict(len(answer or "") % 2 == 0, "rules")


def trainer_of(servers: ExitStack, own: World, folder: Path, *more: str) -> Trainer:
    url = servers.enter_context(tinker_server(own))
    config = config_of(url, *more)
    policy = TinkerPolicy(config, say=lambda line: None)
    training = TrainingConfig(
        rollout_batch_size=2, num_return_sequences_in_group=4, learning_rate=1e-2, response_max_length=8, save_every=2
    )
    parts = TrainerParts(
        policy=policy, learner=TinkerLearner(policy), engine=policy, sampling=PLAIN,
        sampler=CountingSampler(), prompt=prompt, buffer=ListBuffer(),
        rollout=RolloutParts(EchoRunner(), EvenJudge(), ten_or_minus_five), log=Events().log, checkpoint_dir=folder,
    )  # fmt: skip
    return Trainer(parts, training)


def weights_of(trainer: Trainer) -> bytes:
    folder = trainer.parts.checkpoint_dir / f"step_{trainer.step}"
    return (folder / "adapter_model.safetensors").read_bytes()


def test_a_killed_run_continues_from_the_servers_state(servers: ExitStack, tmp_path: Path) -> None:
    straight = trainer_of(servers, first := world(), tmp_path / "straight")
    asyncio.run(straight.train(4))
    second = world(saved=first.saved)  # a restarted server: it has forgotten everything but its states
    resumed = trainer_of(servers, second, tmp_path / "resumed")
    resumed.resume(tmp_path / "straight/step_2")
    asyncio.run(resumed.train(2))
    assert weights_of(resumed) == weights_of(straight) != weights_of_step(straight, 2)
    path = tmp_path / "straight/step_4"
    checkpoint.verify(path)
    # The adapter that came back is the policy that the server trained: in PEFT, and as a sampler.
    local = policy_of(8, 0)
    local.load_adapter(path)
    rows = [c for group in straight.parts.engine.generate(PROMPTS, 2, sampling=PLAIN, max_new_tokens=8) for c in group]
    again = TinkerPolicy(config_of(servers.enter_context(tinker_server(first))), path)
    evaluated = [c for group in again.generate(PROMPTS, 2, max_new_tokens=8) for c in group]
    assert [c.token_ids for c in evaluated] != [] and again.version == 0
    served = straight.parts.policy.logprobs(rows)  # type: ignore[attr-defined]
    for a, b in zip(local.known_logprobs(rows, PLAIN, "padded", 1 << 16), served, strict=True):
        assert torch.allclose(a.double(), b, atol=1e-4)


def weights_of_step(trainer: Trainer, step: int) -> bytes:
    return (trainer.parts.checkpoint_dir / f"step_{step}" / "adapter_model.safetensors").read_bytes()


def test_a_failing_server_is_asked_again_then_the_run_is_saved_and_stops(servers: ExitStack, tmp_path: Path) -> None:
    for kind, saved in (("asample", "step_3"), ("forward_backward", "step_3"), ("optim_step", "step_2")):
        own = world()
        trainer = trainer_of(servers, own, tmp_path / kind, "engine.max_retries=1")
        asyncio.run(trainer.train(3))
        (tmp_path / kind / "step_3").rename(tmp_path / kind / "kept") if saved == "step_2" else None
        own.failing = {kind: 1}
        if kind == "asample":
            asyncio.run(trainer.train(1))
            saved = "step_4"
        own.failing = {kind: 100}
        with pytest.raises(ProviderError, match=f"no {kind} today"):
            asyncio.run(trainer.train(1))
        assert (newest := checkpoint.latest(tmp_path / kind)) and newest.name == saved


def test_a_server_that_fails_for_longer_is_waited_for_and_said(servers: ExitStack) -> None:
    own, said = world(), Said()
    policy = begun(servers, own, "training.patience_s=60", said=said)
    own.failing = {"asample": 2}
    assert len(policy.generate(PROMPTS[:1], 2, max_new_tokens=4)[0]) == 2
    assert [line for line in said.lines if "paused" in line and "60 s at most" in line] == said.lines[-1:]
    policy._patience, own.failing = 1.0, {"asample": 100}
    with pytest.raises(ProviderError, match="no asample today"):
        policy.generate(PROMPTS[:1], 2, max_new_tokens=4)
    assert 0 < 100 - own.failing["asample"] < 10


def test_what_a_server_lacks_or_changes_is_refused_with_value_and_cure(servers: ExitStack, tmp_path: Path) -> None:
    url = servers.enter_context(tinker_server(world()))
    for setting, message in TABLES["refused"].items():
        with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
            config_of(url, setting)
    with pytest.raises(ConfigError, match=r"training.lookahead=1 .* set it to 0"):
        config_of(url, "lookahead=1", "workflow.repairs=1", "prefill=false")

    def refused(message: str, *more: str, own: World | None = None, **changes: Any) -> None:
        with pytest.raises(ConfigError, match=message):
            address = servers.enter_context(tinker_server(own or world(**changes)))
            TinkerPolicy(config_of(address, *more)).share()

    refused("serves other-model, not ", own=World(policy_of, "other-model"))
    refused(r"model.lora_alpha=64, but .* scales adapters by 32; set it so", "lora_alpha=64")
    refused(r"model.lora_alpha=32, but .* scales adapters by 16", alpha=16.0)
    refused("takes 100 tokens, an episode has up to", longest=100)
    refused(r"has no tinker.json: a server .* starts from its own states", f"model.adapter={tmp_path}")
    with pytest.raises(ConfigError, match="2 processes: the server trains"):
        load_together(config_of(url), type("Two", (Alone,), {"size": 2})())
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ConfigError, match=r"pip install 'llm-as-judge\[tinker\]'"),
    ):
        patch.setitem(sys.modules, "tinker", None)
        load_author(config_of(url))
    said = Said()

    def large(rank: int, seed: int) -> Policy:
        policy = policy_of(rank, seed)
        with torch.no_grad():
            [weight.mul_(6**0.5) for name, weight in policy.model.named_parameters() if "lora_A" in name]
        return policy

    begun(servers, World(large, NANO), said=said)
    assert any("2.4 times as large as PEFT does: learning_rate=0.002 acts like 0.0049" in line for line in said.lines)
    policy = begun(servers, world(archives=False), said=said)
    policy.save(tmp_path)
    assert "gives back no adapter" in said.lines[-1] and [p.name for p in tmp_path.iterdir()] == ["tinker.json"]


@pytest.mark.slow
def test_warm_up_training_and_their_cost(servers: ExitStack, here: Path) -> None:
    """The commands, in the embedded world."""
    own = world()
    url = servers.enter_context(tinker_server(own))
    less = TABLES["small run"]
    warm = run_warmup(config_of(url, *less))
    assert (warm.adapter / "tinker.json").exists()
    result = asyncio.run(run_training(config_of(url, *less, f"model.adapter={warm.adapter.parent}")))
    used = result.usage["policy"]
    assert result.steps == 1 and used.prompt_tokens > 1000 and used.cost > used.prompt_tokens / 1e6
    with pytest.raises(Exception, match=r"budget.max_cost=1e-06 is spent"):
        asyncio.run(run_training(config_of(url, *less, "max_steps=2", "budget.max_cost=1e-6")))
    asked, own.failing["create_model"] = len(own.asked), 9
    with pytest.raises(ProviderError, match="no create_model today"):
        asyncio.run(run_training(config_of(url, *less)))
    assert "asample" not in {kind for kind, _ in own.asked[asked:]}, "an evaluation came before the server's refusal"
    plan = make_plan(config_of(url, *less), ["1x80"])
    assert plan.machines["1x80"].run_cost > 0 and "trainer" not in plan.machines["1x80"].memory_GB
