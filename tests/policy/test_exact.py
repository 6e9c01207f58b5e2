"""The shared-prefix layout equals padded rows and the model's own forward pass; the checks notice if it does not."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import MethodType
from typing import Any

import pytest
import torch
from helpers.tables import tables
from helpers.tiny import FAMILIES, logprobs_of, tiny_policy
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import attention, scoring
from llm_as_judge.policy import tree as prefix_tree
from llm_as_judge.policy.exactness import check_layout
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.shareable import why_not
from llm_as_judge.types import Completion

Ids = tuple[int, ...]
WHOLE = 10**9
KINDS = ("ragged", "identical", "prefix", "deep", "unshared")


def completion(prompt: Ids, tokens: Ids) -> Completion:
    return Completion("", prompt, tokens, (-1.0,) * len(tokens), "stop")


def batch(kind: str, seed: int) -> list[Completion]:
    """A small batch of one of ``KINDS``, the shapes of a tree."""
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
    elif kind == "prefix":  # a completion begins another, and a prompt begins another
        longer = found[0].token_ids + ids(3)
        found += [completion(prompts[0], longer), completion(prompts[0] + found[0].token_ids, ids(4))]
    elif kind == "deep":
        stem = ids(12, 9)
        for _ in range(3):
            stem = stem + ids(10, 9)
            found += [completion(prompts[1], stem), completion(prompts[1], stem + ids(3))]
    return found


@cache
def policy_of(family: str, double: bool = False, checkpointing: bool = False) -> Policy:
    more = {"initializer_range": 0.05, "head_dim": 8}  # larger weights would amplify rounding
    policy = tiny_policy(perturb=0.05, family=family, more=more, gradient_checkpointing=checkpointing)
    if double:
        policy.model.double()
        lift_casts(policy.base)
    return policy


def lift_casts(base: Any) -> None:
    """Computes normalisation and rotary positions in the model's precision; transformers uses float32."""

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
    kernel: str | None = None,
    sampling: Sampling | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probs of all tokens in order, and the gradient of a sum that weights every token differently."""
    found: dict[int, torch.Tensor] = {}
    policy.model.zero_grad(set_to_none=True)
    with pytest.MonkeyPatch.context() as patch:
        if kernel is not None:
            patch.setattr(scoring, "kernel_for", lambda device: kernel)
        for members, scores in policy.micro_batches(completions, sampling or Sampling(), layout, budget):
            rows = [r[m] for r, m in zip(scores.logprobs, scores.mask, strict=True)]
            weights = [torch.sin(torch.arange(len(r)) + 3.0 * i).to(r) for i, r in zip(members, rows, strict=True)]
            torch.stack([(r * w).sum() for r, w in zip(rows, weights, strict=True)]).sum().backward()
            found.update((i, r.detach()) for i, r in zip(members, rows, strict=True))
    gradients = [p.grad for p in policy.trainable_parameters]
    assert all(g is not None for g in gradients)
    return torch.cat([found[i] for i in range(len(completions))]), [g for g in gradients if g is not None]


def differences(found: Any, expected: Any) -> tuple[float, float]:
    """Largest relative difference of a log-prob, and of a gradient relative to the largest entry of its tensor."""
    scores = float(((found[0] - expected[0]).abs() / expected[0].abs().clamp(min=1)).max())
    pairs = zip(found[1], expected[1], strict=True)
    return scores, max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize(("double", "logprob", "gradient"), [(False, 1e-6, 1e-5), (True, 1e-12, 1e-12)])
@settings(max_examples=12)
@given(
    family=st.sampled_from(list(FAMILIES)),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 999),
    budget=st.sampled_from([WHOLE, 70, 30, 9]),
)
def test_the_tree_equals_padded_rows(
    double: bool, logprob: float, gradient: float, family: str, kind: str, seed: int, budget: int
) -> None:
    policy, completions = policy_of(family, double), batch(kind, seed)
    found = differences(result(policy, completions, "tree", budget), result(policy, completions, "padded"))
    assert found[0] <= logprob and found[1] <= gradient


def test_kernels_sampling_settings_and_budgets_give_the_same() -> None:
    wrong = []
    cases: list[tuple[str, str, Any]] = [("qwen3", kind, {"kernel": "dense"}) for kind in KINDS]
    cases += [("qwen2", "identical", {"sampling": s}) for s in (Sampling(0.7), Sampling(0.7, 0.9, 8))]
    for family, kind, options in cases:
        policy, completions = policy_of(family, double=True), batch(kind, 3)
        expected = result(policy, completions, "padded", sampling=options.get("sampling"))
        for budget in (WHOLE, 30):
            worst = max(differences(result(policy, completions, "tree", budget, **options), expected))
            if not worst <= 1e-12:
                wrong.append((kind, options, budget, worst))
    policy, completions = policy_of("qwen2", double=True), batch("ragged", 2)
    for budget in (40, 9):
        worst = max(differences(result(policy, completions, "padded", budget), result(policy, completions, "padded")))
        parts = len(list(policy.micro_batches(completions, Sampling(), "padded", budget)))
        if not (worst <= 1e-12 and parts > 1):
            wrong.append(("padded", budget, worst, parts))
    saving, completions = policy_of("qwen2", checkpointing=True), batch("deep", 5)
    for budget in (WHOLE, 30):
        worst = max(differences(result(saving, completions, "tree", budget), result(saving, completions, "padded")))
        if not worst <= 1e-5:
            wrong.append(("checkpointing", budget, worst))
    assert not wrong


def test_a_cpu_forwards_the_prompts_once_and_a_few_completions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, completions = policy_of("qwen2", double=True), batch("deep", 4)
    whole = result(policy, completions, "tree")
    monkeypatch.setattr(scoring, "CPU_ROW_TOKENS", 20)
    forwarded, forward = list[int](), scoring.row_hidden

    def counting(base: Any, tree: prefix_tree.TreePlan, attention: Any) -> torch.Tensor:
        forwarded.append(tree.unique_tokens)
        return forward(base, tree, attention)

    monkeypatch.setattr(scoring, "row_hidden", counting)
    assert max(differences(result(policy, completions, "tree"), whole)) <= 1e-12
    trunk, *rows = forwarded
    assert len(rows) > 1 and max(rows) <= max(20, *(len(c.token_ids) for c in completions))
    assert trunk == prefix_tree.trunk([c.prompt_ids for c in completions])[0].unique_tokens


# --- mistakes are noticed ---


def broken_mask(plan: prefix_tree.TreePlan) -> prefix_tree.TreePlan:
    """Descendants do not see the last query of each node."""
    pieces = [replace(p, q1=p.q1 - 1) if not p.causal and p.q1 - p.q0 > 1 else p for p in plan.layout.pieces]
    return replace(plan, layout=replace(plan.layout, pieces=tuple(pieces)))


def test_a_wrong_plan_or_kernel_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, completions, plan = policy_of("qwen2"), batch("ragged", 6), prefix_tree.plan
    state = torch.get_rng_state()
    policy.model.zero_grad(set_to_none=True)
    check_layout(policy, completions, Sampling(0.7, 0.9), "tree")
    assert policy.model.training and torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in policy.trainable_parameters)
    for wrong in (broken_mask, lambda tree: replace(tree, rows=(tree.rows - 1).clamp(min=0))):
        with monkeypatch.context() as patch, pytest.raises(ConfigError, match=r"nats off .*shared_prefix=false"):
            patch.setattr(prefix_tree, "plan", lambda *a, wrong=wrong: wrong(plan(*a)))
            check_layout(policy, completions, Sampling(), "tree")

    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(attention._Cascade, "forward", staticmethod(fails))
    with pytest.raises(ConfigError, match=r"qwen2 .*RuntimeError: no such kernel.*shared_prefix=false"):
        check_layout(policy, completions, Sampling(), "tree")


WINDOW = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


def test_models_whose_prefixes_cannot_be_shared_are_refused() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}

    def rope(kind: str, **own: Any) -> dict[str, Any]:
        return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **own}}

    cases: list[tuple[dict[str, Any], float, int, str]] = [
        ({}, 0.0, 4000, ""), ({}, 0.1, 0, "lora_dropout=0.1"), (WINDOW, 0.0, 9, "window of 8"), (WINDOW, 0.0, 8, ""),
        ({"model_type": "of the future"}, 0.0, 0, "of the future is not one of"),
        ({"output_router_logits": True}, 0.0, 0, "load-balancing loss"),
        (rope("linear", factor=2.0), 0.0, 4000, ""),
        (rope("yarn", factor=4.0, original_max_position_embeddings=36), 0.0, 4000, ""),
        (rope("dynamic", factor=4.0), 0.0, 512, ""), (rope("dynamic", factor=4.0), 0.0, 513, "beyond 512"),
        (rope("longrope", **factors, original_max_position_embeddings=36), 0.0, 37, "beyond 36"),
        (rope("of the future"), 0.0, 1, "not supported"),
    ]  # fmt: skip
    wrong = []
    for more, dropout, longest, reason in cases:
        config = FAMILIES["qwen2"](
            num_hidden_layers=2, max_position_embeddings=512, **({} if "rope_parameters" in more else more)
        )
        config.rope_parameters = more.get("rope_parameters", config.rope_parameters)  # as it is, unchecked
        found = why_not(config, dropout, longest)
        if reason not in found or bool(reason) != bool(found):
            wrong.append((more, dropout, longest, found))
    assert not wrong
    switching = {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **factors}}
    policy = tiny_policy(family="phi3", more={**switching, "original_max_position_embeddings": 36})
    logprobs_of(policy, [completion((5,) * 30, (6,) * 6)])
    with pytest.raises(ConfigError, match=r"rope_type 'longrope'.* beyond 36 tokens.*response_max_length"):
        logprobs_of(policy, [completion((5,) * 30, (6,) * 7)])


def test_windows_and_dropout_of_the_model_change_nothing_or_are_refused() -> None:
    policy, completions = tiny_policy(perturb=0.1, more={**WINDOW, "sliding_window": 60}), batch("ragged", 7)
    assert "sliding_attention" in policy.base.config.layer_types
    expected = result(policy, completions, "padded")
    assert differences(result(policy, completions, "tree"), expected)[1] <= 1e-5
    longer = [completion(tuple(range(4, 20)) * 4, (5, 6))]
    with pytest.raises(ConfigError, match=r"window of 60 .*training\.shared_prefix=false"):
        logprobs_of(policy, longer, shared_prefix=True)
    logprobs_of(policy, longer)
    for family, more in (("gpt2", {"n_embd": 32, "n_head": 4}), ("qwen2", {"attention_dropout": 0.5})):
        policy, completions = tiny_policy(perturb=0.1, family=family, more=more), batch("ragged", 7)
        assert policy.model.training
        first, second = (logprobs_of(policy, completions).logprobs for _ in range(2))
        assert torch.equal(first, second)
        assert max(differences(result(policy, completions, "tree"), result(policy, completions, "padded"))) < 1e-4


# --- compared with the model's own forward pass ---

#: Operations between hidden state and logits: a divisor, a factor, a cap, none.
HEADS = tables(__file__)


@pytest.mark.parametrize("family", HEADS)
def test_logprobs_and_gradients_are_those_of_the_models_own_pass(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "CPU_LOGIT_ELEMENTS", 5 * 24)  # in chunks, which the backward pass computes again
    policy, completions = tiny_policy(perturb=0.1, family=family, more=HEADS[family]), batch("ragged", 8)
    found = [result(policy, completions, layout) for layout in ("tree", "padded")]  # type: ignore[arg-type]
    policy.model.zero_grad(set_to_none=True)
    expected = []
    for i, c in enumerate(completions):
        ids = torch.tensor([[*c.prompt_ids, *c.token_ids]])
        logprobs = policy.base(input_ids=ids).logits[0, len(c.prompt_ids) - 1 : -1].log_softmax(-1)
        expected.append(logprobs.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0])
        (expected[-1] * torch.sin(torch.arange(len(c.token_ids)) + 3.0 * i)).sum().backward()
    own = torch.cat(expected).detach(), [p.grad for p in policy.trainable_parameters]
    assert max(max(differences(one, own)) for one in found) < 1e-4


def test_a_model_that_is_scored_wrongly_or_not_at_all_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts: tuple[scoring.Layout, ...] = ("tree", "padded")
    for family in ("granite", "cohere", "gemma3_text"):
        policy, completions = tiny_policy(family=family, more=HEADS[family]), batch("ragged", 8)
        for layout in layouts:
            check_layout(policy, completions, Sampling(1.3), layout)
        with monkeypatch.context() as patch:
            patch.setattr(scoring, "logits_of", lambda base, hidden: base.get_output_embeddings()(hidden))
            for layout in layouts:
                with pytest.raises(ConfigError, match=rf"{family} cannot be trained .* nats off its own forward pass"):
                    check_layout(policy, completions, Sampling(), layout)
    policy = tiny_policy()
    monkeypatch.setattr(type(policy.base), "get_decoder", lambda self: self)  # as in some models
    with pytest.raises(ConfigError, match=r"qwen2 cannot be trained here: \w+: .*last_hidden_state"):
        check_layout(policy, batch("ragged", 8), Sampling(), "padded")


def test_gradients_do_not_depend_on_how_threads_share_the_work() -> None:
    """Else a resumed run differs from one that was not stopped. Indexing adds up its gradient in any order on a CPU."""
    policy, draw, threads = tiny_policy(rank=4), random.Random(0), torch.get_num_threads()
    rows = [(tuple(draw.choices(range(3, 20), k=40)), draw.choices(range(3, 20), k=90)) for _ in range(4)]
    completions = [Completion("", p, (*c[:60], *draw.choices(range(3, 20), k=30)), (), "stop") for p, c in rows * 12]
    found = set[bytes]()
    torch.set_num_threads(4)
    try:
        for _ in range(12):
            policy.model.zero_grad()
            scoring.score(policy.base, completions, Sampling(), "tree").logprobs.sum().backward()
            grads = [p.grad.flatten() for p in policy.trainable_parameters if p.grad is not None]
            found.add(torch.cat(grads).numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1
