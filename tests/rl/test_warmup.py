"""The cold start: a policy learns given texts, trains from there, and has them as KL reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.tiny import random_completions, tiny_policy

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import exactness
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.rl.warmup import WarmUp

REPLIES = [replace(c, logprobs=()) for c in random_completions(prompts=2, group=2, seed=5)]


def warm_up(policy: Policy, steps: int = 30, **training: bool) -> WarmUp:
    loop = WarmUp(policy, WarmupConfig(sft_steps=steps, sft_learning_rate=2e-2), TrainingConfig(**training))
    for _ in range(steps):
        loop.step(REPLIES)
    return loop


def likelihoods(policy: Policy, *, reference: bool = False) -> torch.Tensor:
    with torch.no_grad():
        return policy.logprobs(REPLIES, Sampling(), reference=reference).logprobs


@pytest.mark.gpu
def test_the_loss_is_the_mean_over_all_tokens_and_falls(device: str) -> None:
    policy = tiny_policy(rank=8, perturb=0.1, more={"head_dim": 32}, device=device)
    scores = policy.logprobs(REPLIES, Sampling())
    tokens = sum(len(c.token_ids) for c in REPLIES)
    expected = -float((scores.logprobs * scores.mask).sum().detach()) / tokens
    before = WarmUp(policy, WarmupConfig(), TrainingConfig()).loss(REPLIES)
    assert before == pytest.approx(expected, rel=1e-5)
    assert warm_up(policy).loss(REPLIES) < 0.5 * before


def test_shared_prefixes_change_nothing_and_are_dropped_if_inexact(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policies = [tiny_policy(rank=8), tiny_policy(rank=8)]
    for policy, shared in zip(policies, (True, False), strict=True):
        warm_up(policy, 3, shared_prefix=shared)
    assert torch.allclose(*map(likelihoods, policies), atol=1e-4)
    replies = [replace(c, logprobs=()) for c in random_completions(prompts=1, group=4, seed=5)]
    loop = WarmUp(tiny_policy(rank=8), WarmupConfig(), TrainingConfig())
    loop.loss(replies)  # checked without gradient first
    assert loop._layout(replies, Sampling()) == "tree", caplog.text
    checks = []

    def differs(*_: object) -> None:
        checks.append(1)
        raise ConfigError("they differ by 3 nats")

    monkeypatch.setattr(exactness, "check_exact", differs)
    loop = WarmUp(tiny_policy(rank=8), WarmupConfig(), TrainingConfig())
    for _ in range(3):
        loop.step(replies)
    assert len(checks) == 1 and "they differ by 3 nats" in caplog.text


def test_the_warmed_policy_is_the_reference_and_remains_it(tmp_path: Path) -> None:
    warmed = tiny_policy(rank=8)
    warm_up(warmed)
    warmed.save_adapter(tmp_path / "warm")
    start = likelihoods(warmed)

    policy = tiny_policy(rank=8)
    bare = likelihoods(policy)
    names = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    policy.load_adapter(tmp_path / "warm")
    policy.keep_as_reference()
    assert torch.allclose(likelihoods(policy), start, atol=1e-5)
    for parameter in policy.trainable_parameters():
        parameter.data.add_(0.05)
    assert torch.allclose(likelihoods(policy, reference=True), start, atol=1e-5)
    assert not torch.allclose(likelihoods(policy), start, atol=1e-2)
    assert not torch.allclose(likelihoods(policy, reference=True), bare, atol=1e-2)
    assert [name for name, p in policy.model.named_parameters() if p.requires_grad] == names

    policy.save_adapter(tmp_path / "trained")
    again = tiny_policy(rank=8)
    again.load_adapter(tmp_path / "trained")
    assert torch.allclose(likelihoods(again), likelihoods(policy), atol=1e-5)
    assert not list((tmp_path / "trained").glob("*/"))  # only the trained adapter, as PEFT and vLLM read it


def test_the_trained_adapter_generates_not_the_reference() -> None:
    policy = tiny_policy(rank=8, perturb=0.3)
    policy.keep_as_reference()
    for parameter in policy.trainable_parameters():
        parameter.data.zero_()
    ids = torch.tensor([[5, 6, 7]])
    with policy.generation_weights() as base, torch.no_grad():
        merged = base(ids).logits
    with policy.model.disable_adapter(), torch.no_grad():
        assert torch.allclose(merged, policy.base(ids).logits, atol=1e-5)
