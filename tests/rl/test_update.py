"""The update does not depend on how its batch is cut, ordered or spread over processes, and corrects its engine."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from helpers.tiny import tiny_policy
from helpers.update_case import batch, update

from llm_as_judge.config.schema import LossType, TrainingConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.update import Updater


def fresh(**settings: Any) -> Policy:
    return tiny_policy(perturb=0.05, more={"initializer_range": 0.05}, **settings)


def worst(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("loss_type", get_args(LossType))
def test_cut_and_order_change_nothing(loss_type: LossType) -> None:
    completions = batch(fresh(), 0.3)
    shuffled = list(range(len(completions)))
    random.Random(0).shuffle(shuffled)
    common: dict[str, Any] = {"loss_type": loss_type, "beta": 0.05, "importance_sampling": "token_truncate"}
    expected, gradient = update(fresh(), completions, shared_prefix=False, **common)
    for cut in (
        {"shared_prefix": False, "micro_batch_tokens": 60},
        {"shared_prefix": True},
        {"shared_prefix": True, "micro_batch_tokens": 40},
        {"shared_prefix": True, "micro_batch_tokens": 9},
        {"shared_prefix": True, "micro_batch_tokens": 40, "order": shuffled},
        {"shared_prefix": None, "order": shuffled},
    ):
        report, found = update(fresh(), completions, **common, **cut)  # type: ignore[arg-type]
        assert worst(found, gradient) < 1e-5, cut
        for name in ("loss", "kl", "entropy", "clip_fraction", "corrected", "grad_norm"):
            assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-5, abs=1e-7), (name, cut)


def test_a_gradient_with_the_wrong_divisor_would_be_noticed() -> None:
    completions = batch(fresh())
    _, gradient = update(fresh(), completions, loss_type="dapo")
    _, other = update(fresh(), completions[:8], loss_type="dapo")
    assert worst(other, gradient) > 1e-2


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_an_engine_that_computes_otherwise_is_corrected_and_counted(mode: Any) -> None:
    policy = fresh()
    same, other = batch(policy), batch(policy, 2.0)
    plain, gradient = update(fresh(), same, importance_sampling="off")
    report, found = update(fresh(), same, importance_sampling=mode)
    assert report.corrected == 0.0 and worst(found, gradient) < 1e-4  # its own engine: weights of 1
    report, found = update(fresh(), other, importance_sampling=mode)
    assert report.corrected > 0.0 and worst(found, gradient) > 1e-2
    report, found = update(fresh(), other, importance_sampling="off")
    assert report == plain and worst(found, gradient) < 1e-7


def test_stale_completions_are_weighed_against_what_they_were_sampled_with() -> None:
    completions = batch(fresh(), 0.5)
    stale = [replace(c, policy_version=-1) for c in completions]
    settings: dict[str, Any] = {"stale_policy": "behaviour", "importance_sampling": "token_truncate"}
    report, _ = update(fresh(), stale, importance_sampling_cap=1.01, **settings)
    assert report.clip_fraction > 0.0  # the ratio is to the engine's log-probs,
    assert report.corrected == 0.0  # so there is nothing left to correct
    mixed, _ = update(fresh(), [stale[0], *completions[1:]], stale_policy="behaviour")
    assert 0.0 < mixed.clip_fraction < report.clip_fraction


@pytest.mark.parametrize("unit", ["token", "sequence"])
def test_stale_completions_are_weighed_by_truncated_importance(unit: str) -> None:
    """The same weights as of an engine that is as far off, truncated even where those of engines mask."""
    completions = batch(fresh(), 0.5)
    stale = [replace(c, policy_version=-1) for c in completions]
    cap = {"importance_sampling_cap": 1.2}
    expected, gradient = update(fresh(), completions, importance_sampling=f"{unit}_truncate", **cap)
    report, found = update(fresh(), stale, importance_sampling=f"{unit}_mask", **cap)
    assert report == expected and worst(found, gradient) < 1e-7
    assert report.clip_fraction == 0.0 and report.corrected > 0.0
    _, masked = update(fresh(), completions, importance_sampling=f"{unit}_mask", **cap)
    assert worst(masked, gradient) > 1e-2


def test_truncation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lookahead=1 with stale_policy=truncate .*importance_sampling is off"):
        TrainingConfig(lookahead=1, importance_sampling="off")
    TrainingConfig(lookahead=1, importance_sampling="off", stale_policy="behaviour")
    TrainingConfig(importance_sampling="off")


@pytest.mark.parametrize("shared_prefix", [None, True, False])
def test_dropout_takes_the_padded_way_unless_sharing_is_demanded(shared_prefix: bool | None) -> None:
    completions = batch(fresh())
    updater = Updater(fresh(lora_dropout=0.1), TrainingConfig(shared_prefix=shared_prefix))
    if shared_prefix:
        with pytest.raises(ConfigError, match=r"lora_dropout=0\.1"):
            update(fresh(lora_dropout=0.1), completions, shared_prefix=True)
    else:
        assert updater.layout(completions) == "padded"
    assert Updater(fresh(), TrainingConfig(shared_prefix=shared_prefix)).layout(completions) == (
        "padded" if shared_prefix is False else "tree"
    )


def test_sharing_is_left_where_it_saves_nothing() -> None:
    lonely = [replace(c, prompt_ids=(i,)) for i, c in enumerate(batch(fresh()))]
    even = [replace(c, token_ids=(5, 6, 7, 8), logprobs=(-1.0,) * 4) for c in lonely]
    assert Updater(fresh(), TrainingConfig()).layout(even) == "padded"


def test_the_first_batch_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_as_judge.rl import update as module

    seen: list[int] = []
    check = module.check_exact
    monkeypatch.setattr(module, "check_exact", lambda *a: seen.append(len(a[1])) or check(*a))
    plain: list[int] = []
    check_plain = module.check_plain
    monkeypatch.setattr(module, "check_plain", lambda *a: plain.append(len(a[1])) or check_plain(*a))
    completions = batch(fresh())
    update(fresh(), completions, ppo_epochs=2)
    assert seen == plain == [9]  # the rollouts with an advantage
    update(fresh(), completions, shared_prefix=False)
    assert seen == [9] and plain == [9, 9]  # padded rows too are held against the model's own forward


def test_a_tree_that_comes_out_wrong_is_left_for_padded_rows_unless_sharing_is_demanded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from llm_as_judge.policy import attention

    completions = batch(fresh())
    expected = update(fresh(), completions, shared_prefix=False)
    kernel = attention._Cascade.forward
    monkeypatch.setattr(
        attention._Cascade, "forward", staticmethod(lambda ctx, q, k, v, scale, p: kernel(ctx, q, k, v, 2 * scale, p))
    )
    found = update(fresh(), completions)
    assert found[0] == expected[0] and all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True))
    assert "prefixes are not shared: on the first batch" in caplog.text
    with pytest.raises(ConfigError, match=r"shared_prefix=false"):
        update(fresh(), completions, shared_prefix=True)
