"""From rewards to the loss: group-relative advantages, losses compared with plain loops, the sampling distribution."""

import math
import statistics
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from llm_as_judge.config.schema import ImportanceSampling, LossType, ScaleRewards, TrainingConfig
from llm_as_judge.policy.sampling import Sampling, Support, sampling_logprobs
from llm_as_judge.rl.credit import credit, group_advantages
from llm_as_judge.rl.loss import LossInputs, Normaliser, folded, policy_loss
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

NAN = math.nan
SCALES: tuple[ScaleRewards, ...] = ("group", "batch", "none")


def group(*rewards: float, abstained: bool = False) -> Group:
    """A group with NaN for unscored rollouts, because the judge ``abstained`` or for another reason."""
    problem = Problem(Question("p", "text", "math"), Reference(("1",)))

    def rollout(total: float) -> Rollout:
        scored = not math.isnan(total)
        verdict = Verdict(True, "rules") if scored else Verdict(None, "llm" if abstained else "none")
        completion = Completion("", (1,), (2,), (0.0,), "stop")
        return Rollout(problem, completion, "", Execution("finished", "1"), verdict, Reward(total if scored else None))

    return Group(problem, tuple(map(rollout, rewards)))


def test_advantages_equal_a_plain_loop() -> None:
    rows = [[1.0, 4.0, 2.5, NAN], [10.0, -5.0, 9.0]]
    scored = [[r for r in row if not math.isnan(r)] for row in rows]
    for scale in SCALES:
        found = group_advantages([torch.tensor(row, dtype=torch.float64) for row in rows], scale)
        for row, known, worth in zip(rows, scored, found, strict=True):
            spread = {
                "group": statistics.stdev(known), "batch": statistics.stdev([*scored[0], *scored[1]]), "none": 1 - 1e-4,
            }  # fmt: skip
            mean = statistics.fmean(known)
            expected = [0.0 if math.isnan(r) else (r - mean) / (spread[scale] + 1e-4) for r in row]
            assert worth.tolist() == pytest.approx(expected, abs=1e-12), scale


def test_groups_without_contrast_or_with_an_abstention_teach_nothing() -> None:
    credited = credit([group(9.5, 9.5001, 9.4999), group(9.0, NAN), group(NAN), group(1.0, 3.0)], "group")
    assert [c.contrast for c in credited] == [False, False, False, True]
    assert [a for c in credited[:3] for a in c.advantages] == [0.0] * 6
    biased, sound = group(9.0, 8.0, -3.0, NAN, abstained=True), group(1.0, 3.0, NAN)
    for scale in SCALES:
        left_out, kept = credit([biased, sound], scale)
        assert (left_out.left_out, left_out.contrast) == (True, False)
        assert left_out.advantages == (0.0,) * 4 and all(map(math.isnan, left_out.rewards))
        assert kept.advantages == credit([sound], scale)[0].advantages
        assert not kept.left_out, "a failure of ours does not bias the others"


def test_shuffling_permutes_the_scored_rewards_over_the_batch() -> None:
    groups = [group(*map(float, range(6 * i, 6 * i + 6))) for i in range(5)] + [group(NAN, 40.0)]
    found, again = ([c.rewards for c in credit(groups, "none", shuffle_seed=3)] for _ in range(2))
    assert found[:-1] == again[:-1] and found[-1][1] == again[-1][1] and math.isnan(found[-1][0])
    assert sorted(r for row in found for r in row if not math.isnan(r)) == [*map(float, range(30)), 40.0]
    assert found[0] != (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


@settings(max_examples=60)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(-100, 100))
def test_sum_is_zero_and_a_shift_changes_nothing(rewards: list[float], shift: float) -> None:
    row = torch.tensor(rewards, dtype=torch.float64)
    plain, shifted = (worth.tolist() for worth in group_advantages([row, row + shift], "none"))
    assert sum(plain) == pytest.approx(0, abs=1e-9)
    # At the tolerance itself a shift may round to the other side.
    if abs(max(rewards) - min(rewards) - 1e-3) > 1e-9:
        assert plain == pytest.approx(shifted, abs=1e-9)


LENGTHS = [5, 1, 7, 3, 6]
MAX_LENGTH = 9


def batch(seed: int = 0) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(5, 7, generator=generator, dtype=torch.float64)

    new = -noise(1.0).abs()
    mask = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    return LossInputs(
        logprobs=new.clone().requires_grad_(),
        advantages=torch.tensor([1.0, -2.0, 0.5, -0.3, 0.0], dtype=torch.float64), mask=mask,
        old_logprobs=new + noise(0.4), ref_logprobs=new + noise(0.5), sampling_logprobs=new + noise(0.6),
    )  # fmt: skip


def slow_importance(inputs: LossInputs, settings: TrainingConfig, i: int, j: int) -> float:
    if inputs.sampling_logprobs is None or settings.importance_sampling == "off":
        return 1.0
    assert inputs.old_logprobs is not None
    level, kind = settings.importance_sampling.split("_")
    tokens = range(LENGTHS[i]) if level == "sequence" else [j]
    weight = math.exp(sum(float(inputs.old_logprobs[i, t] - inputs.sampling_logprobs[i, t]) for t in tokens))
    low, high = settings.importance_sampling_clip_min, settings.importance_sampling_cap
    return weight if low <= weight <= high else 0.0 if kind == "mask" else min(max(weight, low), high)


def slow_loss(inputs: LossInputs, settings: TrainingConfig, logprobs: Tensor) -> float:
    """The papers' formulas, one token at a time."""
    assert inputs.old_logprobs is not None and inputs.ref_logprobs is not None
    sequence_sums, low, high = [], 1 - settings.epsilon, 1 + settings.epsilon_high
    for i, length in enumerate(LENGTHS):
        new, old, ref = (
            [float(t[i, j]) for j in range(length)] for t in (logprobs, inputs.old_logprobs, inputs.ref_logprobs)
        )
        advantage, total = float(inputs.advantages[i]), 0.0
        for j in range(length):
            ratio = math.exp(new[j] - old[j])
            weight = slow_importance(inputs, settings, i, j)
            if settings.loss_type == "gspo":
                ratio = math.exp(sum(a - b for a, b in zip(new, old, strict=True)) / length)
            if settings.loss_type == "cispo":
                total -= weight * min(ratio, high) * advantage * new[j]
            else:
                total -= weight * min(ratio * advantage, min(max(ratio, low), high) * advantage)
            delta = ref[j] - new[j]
            kl = math.exp(delta) - delta - 1
            total += settings.beta * kl * (ratio if settings.use_bias_correction_kl else 1.0)
        sequence_sums.append(total)
    if settings.loss_type in ("grpo", "gspo"):
        return sum(s / n for s, n in zip(sequence_sums, LENGTHS, strict=True)) / len(LENGTHS)
    if settings.loss_type == "dr_grpo":
        return sum(sequence_sums) / (len(LENGTHS) * MAX_LENGTH)
    return sum(sequence_sums) / sum(LENGTHS)


def settings_of(loss_type: LossType, beta: float = 0.0, **more: Any) -> TrainingConfig:
    values = {"loss_type": loss_type, "beta": beta, "importance_sampling": "off", **more}
    return TrainingConfig(epsilon=0.2, epsilon_high=0.28, response_max_length=MAX_LENGTH, **values)


WHOLE = Normaliser(len(LENGTHS), sum(LENGTHS))


IMPORTANCE = get_args(ImportanceSampling)
VARIANTS = [
    *({"loss_type": t, "beta": b} for t in get_args(LossType) for b in (0.0, 0.1)),
    *({"loss_type": t, "beta": 0.1, "use_bias_correction_kl": False} for t in get_args(LossType)),
    *(
        {"loss_type": t, "importance_sampling": mode, "importance_sampling_cap": 1.2, "beta": 0.1, **bound}
        for t in get_args(LossType)
        for mode in IMPORTANCE
        for bound in ({}, {"importance_sampling_clip_min": 0.8})
    ),
]


def test_values_and_gradients_equal_the_slow_loop() -> None:
    wrong = []
    for variant in VARIANTS:
        inputs, settings, step = batch(), settings_of(**variant), 1e-6
        loss = policy_loss(inputs, settings, WHOLE).loss
        loss.backward()
        expected = slow_loss(inputs, settings, inputs.logprobs.detach())
        if float(loss.detach()) != pytest.approx(expected, rel=1e-12):
            wrong.append((variant, float(loss), expected))
        if settings.loss_type == "cispo":  # not the gradient of its value
            continue
        slopes = torch.zeros_like(inputs.logprobs)
        for i, length in enumerate(LENGTHS):
            for j in range(length):
                ends = []
                for sign in (1, -1):
                    moved = inputs.logprobs.detach().clone()
                    moved[i, j] += sign * step
                    ends.append(slow_loss(inputs, settings, moved))
                slopes[i, j] = (ends[0] - ends[1]) / (2 * step)
        if not torch.allclose(inputs.logprobs.grad, slopes, rtol=0, atol=1e-8):  # type: ignore[arg-type]
            wrong.append((variant, "gradient"))
    assert not wrong


def closed_form(inputs: LossInputs, settings: TrainingConfig) -> Tensor:
    """Advantages of single tokens at the first epoch: (advantage x weight + beta x slope of the KL) / divisor."""
    mask, lengths = inputs.mask, torch.tensor(LENGTHS, dtype=torch.float64)[:, None]
    assert inputs.ref_logprobs is not None and inputs.sampling_logprobs is not None
    weight: Tensor | float = 1.0
    if settings.importance_sampling != "off":
        ratio = (inputs.logprobs.detach() - inputs.sampling_logprobs).masked_fill(~mask, 0)
        ratio = (ratio.sum(-1, keepdim=True) if "sequence" in settings.importance_sampling else ratio).exp()
        low, cap = settings.importance_sampling_clip_min, settings.importance_sampling_cap
        beyond = (ratio < low) | (ratio > cap)
        weight = ratio.masked_fill(beyond, 0) if "mask" in settings.importance_sampling else ratio.clamp(low, cap)
    delta = inputs.ref_logprobs - inputs.logprobs.detach()
    kl = (delta.exp() - delta - 1).masked_fill(~mask, 0)
    slope = delta.exp() - 1
    if settings.use_bias_correction_kl:
        slope = slope - (kl.sum(-1, keepdim=True) / lengths if settings.loss_type == "gspo" else kl)
    if settings.loss_type == "gspo" and isinstance(weight, Tensor):  # its ratio is that of the whole sequence
        weight = (weight * mask).sum(-1, keepdim=True) / lengths
    divisors = {"grpo": lengths * 5, "gspo": lengths * 5, "dr_grpo": 5.0 * MAX_LENGTH}
    divisor = divisors.get(settings.loss_type, sum(LENGTHS))
    return (inputs.advantages[:, None] * weight + settings.beta * slope) / divisor * mask


def test_advantages_of_single_tokens_have_the_gradient_of_every_loss() -> None:
    wrong = []
    for variant in VARIANTS:
        for first in (True, False):
            inputs, settings = batch(), settings_of(**variant)
            if first:
                inputs = replace(inputs, old_logprobs=None)
            policy_loss(inputs, settings, WHOLE).loss.backward()
            advantages, out = folded(inputs, settings, WHOLE)
            # A server's loss "importance_sampling", as a sum and relative to the current log-probs.
            served = inputs.logprobs.detach().clone().requires_grad_()
            (-(served - inputs.logprobs.detach()).exp() * advantages).sum().backward()
            expected = closed_form(inputs, settings)
            differs = float((served.grad - inputs.logprobs.grad).abs().max())  # type: ignore[operator]
            if differs > 1e-16 or (first and float((advantages - expected).abs().max()) > 1e-15):
                wrong.append((variant, first, differs))
            assert out._replace(loss=0.0) == policy_loss(inputs, settings, WHOLE)._replace(loss=0.0)  # type: ignore[arg-type]
    assert not wrong


def test_clipped_tokens_are_counted_and_padding_may_hold_anything() -> None:
    new = torch.tensor([[0.5, 0.4, -0.5]])
    old, mask = torch.zeros(1, 3), torch.tensor([[True, True, True]])
    up = policy_loss(LossInputs(new, torch.tensor([1.0]), mask, old), TrainingConfig(), Normaliser(1, 3))
    down = policy_loss(LossInputs(new, torch.tensor([-1.0]), mask, old), TrainingConfig(), Normaliser(1, 3))
    assert (up.clipped, down.clipped) == (2.0, 1.0), "too high for a good answer, too low for a bad one"
    inputs = batch()
    clean = float(policy_loss(inputs, settings_of("grpo", 0.1), WHOLE).loss.detach())
    assert inputs.old_logprobs is not None and inputs.ref_logprobs is not None
    poisoned = LossInputs(
        torch.where(inputs.mask, inputs.logprobs.detach(), math.nan).requires_grad_(), inputs.advantages, inputs.mask,
        inputs.old_logprobs.masked_fill(~inputs.mask, math.inf),
        inputs.ref_logprobs.masked_fill(~inputs.mask, -math.inf),
    )  # fmt: skip
    loss = policy_loss(poisoned, settings_of("grpo", 0.1), WHOLE).loss
    loss.backward()
    assert float(loss.detach()) == clean
    assert poisoned.logprobs.grad is not None and bool(torch.isfinite(poisoned.logprobs.grad).all())


LOGITS = torch.tensor([[2.0, 1.0, 0.5, -1.0, -3.0]])


def test_filters_are_hugging_faces_and_leave_the_sampled_token() -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)) * 3
    expected = logits
    for warper in (TemperatureLogitsWarper(0.7), TopKLogitsWarper(20), TopPLogitsWarper(0.8)):
        expected = warper(None, expected)
    everything = torch.arange(50).expand(20, 50)

    def dense(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
        support = sampling_logprobs(logits[:, None], sampling)
        parts = (part if part is None else part.expand(-1, 50, -1) for part in support)
        return Support(*parts).of(everything[: len(logits)])  # type: ignore[arg-type]

    found = dense(logits, Sampling(0.7, 0.8, 20))
    assert torch.allclose(found.exp(), expected.softmax(-1), atol=1e-6)
    cut = dense(logits, Sampling(0.7, top_k=20))
    assert torch.allclose(found, dense(cut, Sampling(top_p=0.8))), "top-p over the whole vocabulary"
    assert sampling_logprobs(logits, Sampling(0.7, 0.8, 20)).entropy() == pytest.approx(
        -torch.xlogy(found.exp(), found.exp()).sum(-1), abs=1e-5
    )
    for sampled in (0, 1, 4):  # in the support, left out by top-p, left out by top-k
        scores = sampling_logprobs(LOGITS, Sampling(1.0, 0.3, 2), keep=torch.tensor([sampled]))
        assert torch.isfinite(scores.of(torch.tensor([sampled]))) and torch.isfinite(scores.of(torch.tensor([0])))
        assert scores.of(torch.tensor([3])) == -torch.inf
        in_all = {0, sampled}
        expected = LOGITS[0, 0] - LOGITS[0, list(in_all)].logsumexp(0)
        assert float(scores.of(torch.tensor([0]))) == pytest.approx(float(expected), abs=1e-5), "no token counts twice"
    tied = sampling_logprobs(torch.tensor([[1.0, 2.0, 1.0, 1.0]]), Sampling(top_k=2))
    assert tied.ids is not None and tied.ids.shape == (1, 2) and 1 in tied.ids
    half = Support(torch.tensor([math.log(0.5), math.log(0.5), -math.inf]), None)
    assert float(half.entropy()) == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match="temperature"):
        sampling_logprobs(LOGITS, Sampling(0.0))
    for temperature in (1e-5, 1e-38, 1e-300):
        for top_p, top_k in ((1.0, 0), (0.9, 3)):
            shares = sampling_logprobs(LOGITS, Sampling(temperature, top_p, top_k))
            assert shares.of(torch.tensor([0])) == 0, "the coldest draw the likeliest token"


def test_the_corrected_kl_term_has_the_gradient_of_the_kl_itself() -> None:
    """On-policy, the mean over all tokens of a small vocabulary is d KL(policy || reference)."""
    generator = torch.Generator().manual_seed(0)
    logits, reference = (torch.randn(7, dtype=torch.float64, generator=generator) for _ in range(2))
    logits.requires_grad_(True)
    reference = reference.log_softmax(-1)
    (kl,) = torch.autograd.grad((logits.softmax(-1) * (logits.log_softmax(-1) - reference)).sum(), logits)
    found = []
    for corrected in (True, False):
        settings = settings_of("grpo", 1.0, use_bias_correction_kl=corrected)
        expected = torch.zeros_like(logits)
        for token, probability in enumerate(logits.detach().softmax(-1)):
            new = logits.log_softmax(-1)[token].view(1, 1)
            inputs = LossInputs(new, torch.zeros(1), torch.ones(1, 1).bool(), None, reference[token].view(1, 1))
            loss = policy_loss(inputs, settings, Normaliser(1, 1)).loss
            expected += probability * torch.autograd.grad(loss, logits)[0]
        found.append(float((expected - kl).norm() / kl.norm()))
    assert found[0] < 1e-12 and found[1] > 0.1
