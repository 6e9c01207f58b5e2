"""Updates do not depend on how a batch is cut or ordered, correct the engine and check themselves; the cold start."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from helpers.tiny import logprobs_of, random_completions, tiny_policy
from helpers.update_case import batch, fresh, update

from llm_as_judge.config.schema import LossType, TrainingConfig, WarmupConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import attention
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.update import Updater
from llm_as_judge.rl.warmup import WarmUp


def worst(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "loss_type", ["dapo", *(pytest.param(t, marks=pytest.mark.slow) for t in get_args(LossType) if t != "dapo")]
)
def test_micro_batches_layout_and_order_change_nothing(loss_type: LossType) -> None:
    completions = batch(fresh(), 0.3)
    shuffled = list(range(len(completions)))
    random.Random(0).shuffle(shuffled)
    common: dict[str, Any] = {"loss_type": loss_type, "beta": 0.05, "importance_sampling": "token_truncate"}
    expected, gradient = update(fresh(), completions, shared_prefix=False, **common)
    cuts: list[dict[str, Any]] = [
        {"shared_prefix": False, "micro_batch_tokens": 60},
        {"shared_prefix": True},
        {"shared_prefix": True, "micro_batch_tokens": 9},
        {"shared_prefix": True, "micro_batch_tokens": 40, "order": shuffled},
        {"shared_prefix": None, "order": shuffled},
    ]
    for cut in cuts:
        report, found = update(fresh(), completions, **common, **cut)
        assert worst(found, gradient) < 1e-5, cut
        for name in ("loss", "kl", "entropy", "clip_fraction", "corrected", "grad_norm"):
            assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-5, abs=1e-7), (name, cut)
    _, other = update(fresh(), completions[:8], **common)
    assert worst(other, gradient) > 1e-2  # the comparison would notice another divisor


def test_differences_of_the_engine_are_corrected_and_counted() -> None:
    policy = fresh()
    same, other = batch(policy), batch(policy, 2.0)
    plain, gradient = update(fresh(), same, importance_sampling="off")
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        report, found = update(fresh(), same, importance_sampling=mode)
        assert report.corrected == 0.0 and worst(found, gradient) < 1e-4 > report.sampling_logp_difference, mode
        report, found = update(fresh(), other, importance_sampling=mode)
        assert report.corrected > 0.0 and worst(found, gradient) > 1e-2 < report.sampling_logp_difference, mode
    report, found = update(fresh(), other, importance_sampling="off")
    assert report == plain and worst(found, gradient) < 1e-7


def test_the_ratio_of_stale_completions_is_against_their_sampling_logprobs() -> None:
    completions = batch(fresh(), 0.5)
    stale = [replace(c, policy_version=-1) for c in completions]
    report, _ = update(fresh(), stale, importance_sampling_cap=1.01, importance_sampling="off")
    assert report.clip_fraction > 0.0
    assert report.corrected == 0.0  # the ratio contains the correction
    mixed, _ = update(fresh(), [stale[0], *completions[1:]], importance_sampling="off")
    assert 0.0 < mixed.clip_fraction < report.clip_fraction


@pytest.mark.parametrize("unit", ["token", "sequence"])
def test_stale_completions_get_truncated_importance_weights(unit: str) -> None:
    """The weights of an engine with the same differences, truncated even if the setting is to mask."""
    completions = batch(fresh(), 0.5)
    stale = [replace(c, policy_version=-1) for c in completions]
    cap = {"importance_sampling_cap": 1.2}
    expected, gradient = update(fresh(), completions, importance_sampling=f"{unit}_truncate", **cap)
    report, found = update(fresh(), stale, importance_sampling=f"{unit}_mask", **cap)
    assert report == expected and worst(found, gradient) < 1e-7
    assert report.clip_fraction == 0.0 and report.corrected > 0.0
    _, masked = update(fresh(), completions, importance_sampling=f"{unit}_mask", **cap)
    assert worst(masked, gradient) > 1e-3


def test_prefixes_are_shared_if_possible_and_worthwhile() -> None:
    completions = batch(fresh())
    lonely = [replace(c, prompt_ids=(i,), token_ids=(5, 6, 7), logprobs=(-1.0,) * 3) for i, c in enumerate(completions)]
    wrong = []
    for shared, dropout, rows, layout in (
        (None, 0.0, completions, "tree"), (True, 0.0, completions, "tree"), (False, 0.0, completions, "padded"),
        (None, 0.1, completions, "padded"), (False, 0.1, completions, "padded"), (None, 0.0, lonely, "padded"),
    ):  # fmt: skip
        updater = Updater(fresh(lora_dropout=dropout), TrainingConfig(shared_prefix=shared))
        if (found := updater.checked_layout(rows, Sampling())) != layout:
            wrong.append((shared, dropout, layout, found))
    assert not wrong
    with pytest.raises(ConfigError, match=r"lora_dropout=0\.1"):
        update(fresh(lora_dropout=0.1), completions, shared_prefix=True)


def test_a_wrong_tree_is_replaced_or_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    completions = batch(fresh())
    expected = update(fresh(), completions, shared_prefix=False)
    kernel = attention._Cascade.forward
    monkeypatch.setattr(
        attention._Cascade, "forward", staticmethod(lambda ctx, q, k, v, scale, p: kernel(ctx, q, k, v, 2 * scale, p))
    )
    found = update(fresh(), completions)
    assert found[0] == expected[0] and all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True))
    assert "prefixes are not shared: qwen2 cannot be trained with shared prefixes" in caplog.text
    with pytest.raises(ConfigError, match=r"shared_prefix=false"):
        update(fresh(), completions, shared_prefix=True)


REPLIES = [replace(c, logprobs=()) for c in random_completions(prompts=2, group=2, seed=5)]


def warm_up(policy: Policy, steps: int = 30, **training: bool) -> WarmUp:
    settings = TrainingConfig(**training)
    loop = WarmUp(Updater(policy, settings), WarmupConfig(sft_steps=steps, sft_learning_rate=2e-2), settings)
    for _ in range(steps):
        loop.step(REPLIES)
    return loop


def likelihoods(policy: Policy, *, reference: bool = False) -> torch.Tensor:
    with torch.no_grad():
        return logprobs_of(policy, REPLIES, Sampling(), reference=reference).logprobs


@pytest.mark.gpu
def test_the_loss_is_the_mean_over_all_tokens_and_falls(device: str) -> None:
    policy = tiny_policy(rank=8, perturb=0.1, more={"head_dim": 32}, device=device)
    scores = logprobs_of(policy, REPLIES, Sampling())
    tokens = sum(len(c.token_ids) for c in REPLIES)
    expected = -float((scores.logprobs * scores.mask).sum().detach()) / tokens
    before = WarmUp(Updater(policy, TrainingConfig()), WarmupConfig(), TrainingConfig()).loss(REPLIES)
    assert before == pytest.approx(expected, rel=1e-5)
    assert warm_up(policy).loss(REPLIES) < 0.5 * before


def test_the_warmed_policy_is_the_reference_and_shared_prefixes_change_nothing(tmp_path: Path) -> None:
    policies = [tiny_policy(rank=8), tiny_policy(rank=8)]
    for policy, shared in zip(policies, (True, False), strict=True):
        warm_up(policy, 3, shared_prefix=shared)
    assert torch.allclose(*map(likelihoods, policies), atol=1e-4)
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
    for parameter in policy.trainable_parameters:
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
    files = {path.name for path in (tmp_path / "trained").iterdir()}  # no reference, no empty model card
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
