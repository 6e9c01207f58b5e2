"""The shared-prefix computation equals the padded one: log-probabilities and every gradient of the adapter, for every
model family, kernel, cut into stages and shape of batch; and what would break it is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import MethodType
from typing import Any

import pytest
import torch
from helpers.tiny import FAMILIES, random_completions, tiny_policy
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import scoring
from llm_as_judge.policy import tree as prefix_tree
from llm_as_judge.policy.exactness import check_exact, check_plain
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.policy.shareable import why_not
from llm_as_judge.types import Completion

Ids = tuple[int, ...]
WHOLE = 10**9


def completion(prompt: Ids, tokens: Ids) -> Completion:
    return Completion("", prompt, tokens, (-1.0,) * len(tokens), "stop")


def batch(kind: str, seed: int) -> list[Completion]:
    """A small batch of one of the shapes that a tree can take."""
    draw = random.Random(seed)

    def ids(most: int, least: int = 1) -> Ids:
        return tuple(draw.randrange(4, 24) for _ in range(draw.randint(least, most)))

    if kind == "unshared":
        return [completion(ids(12), ids(8)) for _ in range(5)]
    system = ids(20, 10)
    prompts = [system + ids(9) for _ in range(3)]
    found = [completion(p, ids(14)) for p in prompts for _ in range(3)]
    if kind == "identical":
        found += [found[0], found[4], found[4]]
    elif kind == "prefix":  # a completion that begins another, and a prompt that begins another
        longer = found[0].token_ids + ids(3)
        found += [completion(prompts[0], longer), completion(prompts[0] + found[0].token_ids, ids(4))]
    elif kind == "deep":
        stem = ids(12, 9)
        for _ in range(3):
            stem = stem + ids(10, 9)
            found += [completion(prompts[1], stem), completion(prompts[1], stem + ids(3))]
    return found


KINDS = ("ragged", "identical", "prefix", "deep", "unshared")


@cache
def policy_of(family: str, double: bool = False, checkpointing: bool = False) -> Policy:
    # Weights of a usual size: large ones amplify rounding beyond what the claim is about.
    more = {"initializer_range": 0.05, "head_dim": 8}
    policy = tiny_policy(perturb=0.05, family=family, more=more, gradient_checkpointing=checkpointing)
    if double:
        policy.model.double()
        lift_casts(policy.base)
    return policy


def lift_casts(base: Any) -> None:
    """Normalisation and rotary positions in the model's own precision; transformers computes them in float32."""

    def norm(self: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return out

    def rotary(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle = position_ids[..., None].to(x.dtype) * self.inv_freq.to(x.dtype)
        angle = torch.cat([angle, angle], -1)
        return angle.cos(), angle.sin()

    lifted = 0
    for module in base.modules():
        name = type(module).__name__
        if name.endswith("RMSNorm"):
            module.forward, lifted = MethodType(norm, module), lifted + 1
        elif name.endswith("RotaryEmbedding"):
            module.forward, lifted = MethodType(rotary, module), lifted + 1
    assert lifted >= 6


def result(
    policy: Policy,
    completions: Sequence[Completion],
    layout: scoring.Layout,
    budget: int = WHOLE,
    kernel: Any = None,
    sampling: Sampling | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probs of all tokens in order, and the gradient of a sum that weighs every token differently."""
    policy.kernel = kernel
    policy.model.zero_grad(set_to_none=True)
    found: dict[int, torch.Tensor] = {}
    for part in policy.micro_batches(completions, sampling or Sampling(), layout, budget):
        rows = [r[m] for r, m in zip(part.scores.logprobs, part.scores.mask, strict=True)]
        weights = [torch.sin(torch.arange(len(r)) + 3.0 * i).to(r) for i, r in zip(part.members, rows, strict=True)]
        torch.stack([(r * w).sum() for r, w in zip(rows, weights, strict=True)]).sum().backward()
        found.update((i, r.detach()) for i, r in zip(part.members, rows, strict=True))
    gradients = [p.grad for p in policy.trainable_parameters()]
    assert all(g is not None for g in gradients)
    return torch.cat([found[i] for i in range(len(completions))]), [g for g in gradients if g is not None]


def differences(found: Any, expected: Any) -> tuple[float, float]:
    """Largest relative difference of a log-prob, and of a gradient against the largest entry of its tensor."""
    scores = float(((found[0] - expected[0]).abs() / expected[0].abs().clamp(min=1)).max())
    pairs = zip(found[1], expected[1], strict=True)
    return scores, max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@settings(deadline=None, max_examples=12)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 999), budget=st.sampled_from([WHOLE, 70, 30, 9]))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tree_equals_padded_rows_in_float32(family: str, kind: str, seed: int, budget: int) -> None:
    policy, completions = policy_of(family), batch(kind, seed)
    scores, gradients = differences(result(policy, completions, "tree", budget), result(policy, completions, "padded"))
    assert scores <= 1e-6
    assert gradients <= 1e-5


@settings(deadline=None, max_examples=12)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 999), budget=st.sampled_from([WHOLE, 70, 30, 9]))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tree_equals_padded_rows_in_float64(family: str, kind: str, seed: int, budget: int) -> None:
    policy, completions = policy_of(family, double=True), batch(kind, seed)
    scores, gradients = differences(result(policy, completions, "tree", budget), result(policy, completions, "padded"))
    assert scores <= 1e-12
    assert gradients <= 1e-12


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(0.7, 0.9, 8)])
def test_temperature_and_filters_are_part_of_it(sampling: Sampling) -> None:
    policy, completions = policy_of("qwen2", double=True), batch("identical", 1)
    found = [result(policy, completions, x, y, sampling=sampling) for x, y in (("tree", WHOLE), ("tree", 30))]  # type: ignore[arg-type]
    expected = result(policy, completions, "padded", sampling=sampling)
    assert max(max(differences(f, expected)) for f in found) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_dense_reference_gives_the_same(kind: str) -> None:
    policy, completions = policy_of("qwen3", double=True), batch(kind, 3)
    expected = result(policy, completions, "tree", kernel="cascade")
    for budget in (WHOLE, 30):
        assert max(differences(result(policy, completions, "tree", budget, "dense"), expected)) <= 1e-12


@pytest.mark.parametrize("budget", [WHOLE, 30])
def test_gradient_checkpointing_changes_nothing(budget: int) -> None:
    plain, saving = policy_of("qwen2"), policy_of("qwen2", checkpointing=True)
    assert saving.base.is_gradient_checkpointing
    completions = batch("deep", 5)
    found, expected = result(saving, completions, "tree", budget), result(plain, completions, "padded")
    assert differences(found, expected)[0] <= 1e-6 and differences(found, expected)[1] <= 1e-5


@pytest.mark.parametrize("budget", [WHOLE, 40, 9])
def test_padded_rows_may_be_cut_by_the_budget_too(budget: int) -> None:
    policy, completions = policy_of("qwen2", double=True), batch("ragged", 2)
    found = result(policy, completions, "padded", budget)
    assert max(differences(found, result(policy, completions, "padded"))) <= 1e-12
    sizes = [len(p.members) for p in policy.micro_batches(completions, Sampling(), "padded", budget)]
    assert sum(sizes) == len(completions) and (len(sizes) > 1) == (budget < WHOLE)


@pytest.mark.parametrize("budget", [WHOLE, 30])
def test_the_reference_is_without_adapter_and_gradient(budget: int) -> None:
    policy, completions = policy_of("llama"), batch("ragged", 4)
    found = policy.reference_logprobs(completions, Sampling(), "tree", budget)
    expected = policy.logprobs(completions, reference=True)
    for row, scores, mask in zip(found, expected.logprobs, expected.mask, strict=True):
        assert not row.requires_grad and torch.allclose(row, scores[mask], atol=1e-5)


class Held:
    """Bytes that autograd has saved and not yet read back: now, and at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: torch.Tensor) -> list[torch.Tensor | int]:
        size = tensor.numel() * tensor.element_size()
        self.now += size
        self.most = max(self.most, self.now)
        return [tensor, size]

    def unpack(self, box: list[Any]) -> torch.Tensor:
        self.now -= box[1]
        box[1] = 0
        tensor: torch.Tensor = box[0]
        return tensor


def test_a_stage_holds_less_than_the_whole() -> None:
    system = tuple(range(4, 20)) * 4
    completions = [completion(system, tuple(4 + (7 * i + j) % 20 for j in range(30))) for i in range(24)]
    most = []
    for budget in (WHOLE, 64):
        held = Held()
        with torch.autograd.graph.saved_tensors_hooks(held.pack, held.unpack):
            result(policy_of("qwen2"), completions, "tree", budget)
        most.append(held.most)
    assert most[1] < most[0] / 3


# --- what would make it wrong is noticed ---


def broken_mask(layout: prefix_tree.Layout) -> prefix_tree.Layout:
    """Every node's descendants lose sight of it one token early."""
    pieces = tuple(replace(p, q1=p.q1 - 1) if not p.causal and p.q1 - p.q0 > 1 else p for p in layout.pieces)
    return replace(layout, pieces=pieces)


def off_by_one(tree: prefix_tree.TreePlan) -> prefix_tree.TreePlan:
    return replace(tree, rows=(tree.rows - 1).clamp(min=0))


@pytest.mark.parametrize(
    "wrong",
    [lambda t: replace(t, layout=broken_mask(t.layout)), off_by_one, lambda t: replace(t, positions=t.positions + 1)],
    ids=["ancestor mask", "target edge", "positions of the first token"],
)
def test_a_wrong_plan_fails_the_comparison_and_the_start(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, completions, plan = policy_of("qwen2"), batch("ragged", 6), prefix_tree.plan
    expected = result(policy, completions, "padded")
    check_exact(policy, completions, Sampling())
    shift_only = wrong(plan([[1]], [[1]])).positions.tolist() == [1]
    monkeypatch.setattr(prefix_tree, "plan", lambda *a, **k: wrong(plan(*a, **k)))
    found = result(policy, completions, "tree")
    if shift_only:  # rotary positions are relative: a common shift is the one mistake without effect
        assert max(differences(found, expected)) < 1e-4
        return
    assert differences(found, expected)[0] > 1e-3
    with pytest.raises(ConfigError, match=r"differ by .*shared_prefix=false"):
        check_exact(policy, completions, Sampling())


def test_a_gradient_that_is_wrong_alone_is_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_as_judge.policy import attention as tree_attention

    policy, completions = policy_of("qwen2"), batch("ragged", 6)
    whole = tree_attention._Cascade.backward

    def without_ancestors(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.pieces = tuple(p for p in ctx.pieces if p.causal)
        return whole(ctx, *gradients)

    monkeypatch.setattr(tree_attention._Cascade, "backward", staticmethod(without_ancestors))
    with pytest.raises(ConfigError, match="gradient"):
        check_exact(policy, completions, Sampling())


def test_the_check_leaves_no_trace() -> None:
    policy, state = policy_of("qwen2"), torch.get_rng_state()
    policy.model.zero_grad(set_to_none=True)
    check_exact(policy, batch("ragged", 6), Sampling(0.7, 0.9))
    assert all(p.grad is None for p in policy.trainable_parameters())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("more", "dropout", "longest", "reason"),
    [
        ({}, 0.1, 0, "lora_dropout=0.1"),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, 0.0, 9, "window of 8"),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, 0.0, 8, ""),
        ({"layer_types": ["linear_attention", "full_attention"]}, 0.0, 0, "linear_attention"),
        ({"output_router_logits": True}, 0.0, 0, "balance loss"),
        ({"attn_logit_softcapping": 30.0}, 0.0, 0, "softcapping"),
        ({}, 0.0, 0, ""),
    ],
)
def test_models_that_would_come_out_wrong_are_refused(
    more: dict[str, Any], dropout: float, longest: int, reason: str
) -> None:
    config = FAMILIES["qwen2"](num_hidden_layers=2, **more)
    found = why_not(config, dropout, longest)
    assert reason in found and bool(reason) == bool(found)


def test_a_window_that_cuts_nothing_is_exact_and_one_that_cuts_is_refused() -> None:
    more = {"use_sliding_window": True, "sliding_window": 60, "max_window_layers": 1}
    policy, completions = tiny_policy(perturb=0.1, more=more), batch("ragged", 7)
    assert "sliding_attention" in policy.base.config.layer_types
    expected = result(policy, completions, "padded")
    assert differences(result(policy, completions, "tree"), expected)[1] <= 1e-5
    longer = [completion(tuple(range(4, 20)) * 4, (5, 6))]
    with pytest.raises(ConfigError, match=r"window of 60 .*training\.shared_prefix=false"):
        policy.logprobs(longer, shared_prefix=True)
    policy.logprobs(longer)


@pytest.mark.parametrize(
    ("family", "more"), [("gpt2", {"n_embd": 32, "n_head": 4}), ("qwen2", {"attention_dropout": 0.5})]
)
def test_the_frozen_models_own_dropout_is_off(family: str, more: dict[str, Any]) -> None:
    policy, completions = tiny_policy(perturb=0.1, family=family, more=more), batch("ragged", 7)
    assert policy.model.training
    first, second = (policy.logprobs(completions).logprobs for _ in range(2))
    assert torch.equal(first, second)
    assert check_exact(policy, completions, Sampling()).gradient < 1e-5


def test_dropout_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"lora_dropout=0\.5"):
        tiny_policy(lora_dropout=0.5).logprobs(random_completions(), shared_prefix=True)


def test_another_attention_than_the_default_is_refused_by_name() -> None:
    policy = tiny_policy()
    policy.base.set_attn_implementation("eager")
    with pytest.raises(ConfigError, match="attention 'eager'"):
        policy.logprobs(random_completions(), shared_prefix=True)


# --- against the model's own forward pass ---

#: What lies between hidden state and logits: a divisor, a factor, a cap, a transformation.
HEADS = {
    "granite": {"logits_scaling": 8.0, "attention_multiplier": 0.2, "embedding_multiplier": 3.0},
    "cohere": {"logit_scale": 0.1},
    "gemma3_text": {"final_logit_softcapping": 2.0, "head_dim": 8, "query_pre_attn_scalar": 8},
    "gpt2": {"n_embd": 32, "n_head": 4},
    "qwen2": {},
}


@pytest.mark.parametrize("layout", ["padded", "tree"])
@pytest.mark.parametrize("family", HEADS)
def test_logprobs_are_those_of_the_models_own_forward(
    family: str, layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", 5 * 24)  # in chunks, which the backward pass computes again
    policy, completions = tiny_policy(perturb=0.1, family=family, more=HEADS[family]), batch("ragged", 8)
    found, gradients = result(policy, completions, layout)
    policy.model.zero_grad(set_to_none=True)
    expected = []
    for i, c in enumerate(completions):
        ids = torch.tensor([[*c.prompt_ids, *c.token_ids]])
        logprobs = policy.base(input_ids=ids).logits[0, len(c.prompt_ids) - 1 : -1].log_softmax(-1)
        expected.append(logprobs.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0])
        (expected[-1] * torch.sin(torch.arange(len(c.token_ids)) + 3.0 * i)).sum().backward()
    theirs = [p.grad for p in policy.trainable_parameters()]
    assert max(differences((found, gradients), (torch.cat(expected).detach(), theirs))) < 1e-4


@pytest.mark.parametrize("family", ["granite", "cohere", "gemma3_text"])
def test_a_head_without_the_models_own_scale_or_cap_fails_the_start(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, completions = tiny_policy(family=family, more=HEADS[family]), batch("ragged", 8)
    assert check_plain(policy, completions) < 1e-4
    monkeypatch.setattr(scoring, "Head", lambda base: base.get_output_embeddings())
    check_exact(policy, completions, Sampling())  # wrong in both layouts alike
    with pytest.raises(ConfigError, match=rf"{family} are .* nats off its own forward pass"):
        check_plain(policy, completions)


def test_a_model_that_cannot_be_followed_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    monkeypatch.setattr(type(policy.base), "get_decoder", lambda self: self)  # as some models have it
    with pytest.raises(ConfigError, match=r"qwen2 cannot be trained here \(\w+: .*last_hidden_state"):
        check_plain(policy, batch("ragged", 8))


def test_the_check_of_the_models_own_forward_leaves_no_trace() -> None:
    policy, state = tiny_policy(lora_dropout=0.5), torch.get_rng_state()
    check_plain(policy, batch("ragged", 8))
    assert policy.model.training and torch.equal(state, torch.get_rng_state())


def nucleus_edges(policy: Policy, completions: Sequence[Completion]) -> list[float]:
    """Values of ``top_p`` that fall between what padded rows and the tree compute as the mass before a token."""
    logits: list[torch.Tensor] = []
    original = scoring.sampling_logprobs

    def noting(found: torch.Tensor, *settings: Any, **more: Any) -> torch.Tensor:
        logits.append(found)
        return original(found, *settings, **more)

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "sampling_logprobs", noting)
        for layout in scoring.Layout.__args__:  # type: ignore[attr-defined]
            list(policy.micro_batches(completions, Sampling(), layout, WHOLE))
    first, second = (x.softmax(-1).sort(-1, descending=True)[0].cumsum(-1) for x in logits)
    assert len(first) == len(second)  # the completions share nothing, so both have the same rows
    apart = (first - second).abs() > 0
    return [float((a + b) / 2) for a, b in zip(first[apart].double(), second[apart].double(), strict=True) if a < 0.95]


def test_a_flip_at_the_edge_of_the_nucleus_is_counted_and_does_not_stop_the_run() -> None:
    policy = policy_of("qwen2")
    draw = random.Random(3)
    prompt = tuple(draw.randrange(4, 24) for _ in range(30))
    completions = [completion(prompt, tuple(draw.randrange(4, 24) for _ in range(21)))]
    completions += [completion((*prompt[:9], i), (4 + i, 9, 8)) for i in range(3)]
    flipped = 0
    for top_p in nucleus_edges(policy, completions)[:40]:
        sampling = Sampling(1.0, top_p)
        found = check_exact(policy, completions, sampling)
        assert found.logprob < 1e-4 and found.gradient < 1e-4 and found.flips <= 2 and found.tokens == 30
        flipped += found.flips
    assert flipped
