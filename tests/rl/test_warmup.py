"""The cold start: a policy learns given texts, trains from there, and has them as KL reference."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.tiny import random_completions, tiny_policy

from llm_as_judge.config.schema import TrainingConfig, WarmupConfig
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


def test_shared_prefixes_change_nothing() -> None:
    policies = [tiny_policy(rank=8), tiny_policy(rank=8)]
    for policy, shared in zip(policies, (True, False), strict=True):
        warm_up(policy, 3, shared_prefix=shared)
    assert torch.allclose(*map(likelihoods, policies), atol=1e-4)


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

    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        trained = policy.base(ids).logits
        with policy.generation_weights() as base:
            assert torch.allclose(base(ids).logits, trained, atol=1e-5)

    policy.save_adapter(tmp_path / "trained")
    again = tiny_policy(rank=8)
    again.load_adapter(tmp_path / "trained")
    assert torch.allclose(likelihoods(again), likelihoods(policy), atol=1e-5)
    assert not list((tmp_path / "trained").glob("*/"))  # only the trained adapter, as PEFT and vLLM read it
