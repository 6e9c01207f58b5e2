"""Claims about shared-prefix decoding, each against the padded forward of the same weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from helpers.tiny import EOS, NumberTokenizer, tiny_policy
from transformers import Lfm2Config

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import prefill
from llm_as_judge.policy.local import LocalEngine, refuse, repack, sample
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.plain import plain_logprobs
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.types import Completion

RAGGED = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 11], [5, 6, 7, 8, 9, 10, 12, 13, 14], [5, 6, 7, 11]]


def engine(policy: Policy) -> LocalEngine:
    return LocalEngine(policy, policy.tokenizer)


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [c for g in groups for c in g]


def worst_difference(policy: Policy, completions: list[Completion], sampling: Sampling) -> float:
    with torch.no_grad():
        scores = policy.logprobs(completions, sampling)
    sampled = torch.zeros_like(scores.logprobs)
    for row, completion in enumerate(completions):
        sampled[row, : len(completion.logprobs)] = torch.tensor(completion.logprobs)
    return float((sampled - scores.logprobs).abs().max())


@pytest.mark.parametrize("perturb", [0.0, 0.1])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.5), Sampling(1.3, 0.8), Sampling(1.0, 1.0, 5), Sampling(0.7, 0.9, 6)]
)
@pytest.mark.parametrize("prompts", [RAGGED, [[5]], [[4, 5], [6, 7, 8]]])
def test_recorded_logprobs_equal_the_trainers(perturb: float, sampling: Sampling, prompts: list[list[int]]) -> None:
    policy = tiny_policy(perturb=perturb)
    groups = engine(policy).generate(
        prompts,
        4,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_new_tokens=70 if len(prompts) == 2 else 12,  # 70: past the first capacity of the store
        seed=3,
    )
    assert worst_difference(policy, flat(groups), sampling) < 1e-4


@pytest.mark.parametrize("prompts", [RAGGED, [[5]], [[4, 5], [6, 7, 8]], [[4] * 16, [4] * 14 + [5, 6, 7]]])
def test_prompts_as_a_tree_and_in_padded_rows_fill_the_same_store(
    prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(perturb=0.1)
    with policy.generation_weights() as base, torch.inference_mode():
        padded_attention = base.config._attn_implementation
        hidden, tree = prefill.prefill(base, prompts, 2)
        base.set_attn_implementation(padded_attention)
        monkeypatch.setattr(prefill, "kernel_for", lambda device: "dense")  # another device's way
        expected, padded = prefill.prefill(base, prompts, 2)
    torch.testing.assert_close(hidden, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(tree.prompt_mask, padded.prompt_mask) and torch.equal(tree.prompt_lengths, padded.prompt_lengths)
    real = tree.prompt_mask[:, 0, 0, 0] == 0  # [P, L]; what is masked may differ
    for ours, theirs in zip(tree.layers, padded.layers, strict=True):
        for kind in (0, 1):
            torch.testing.assert_close(ours.common[kind], theirs.common[kind], rtol=1e-5, atol=1e-5)
            own, other = (layer.prompt[kind].transpose(1, 2)[real] for layer in (ours, theirs))
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


def test_the_adapter_beside_the_weights_gives_the_same_as_inside_them() -> None:
    policy = tiny_policy(perturb=0.1)
    merged = engine(policy).generate(RAGGED, 2, max_new_tokens=20, seed=1)
    policy.model.base_model.model.to(torch.bfloat16)  # lower precision: not merged
    groups = engine(policy).generate(RAGGED, 2, max_new_tokens=20, seed=1)
    assert [len(g) for g in groups] == [len(g) for g in merged]
    assert worst_difference(policy, flat(groups), Sampling()) < 0.3


def test_greedy_equals_hugging_face_generate() -> None:
    policy = tiny_policy(perturb=0.1)
    prompt = [5, 6, 7, 8, 9]
    policy.model.eval()
    expected = policy.base.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=30, attention_mask=torch.ones(1, 5)
    )[0, 5:].tolist()
    policy.model.train()
    (completion,) = engine(policy).generate([prompt], temperature=0, max_new_tokens=30)[0]
    assert list(completion.token_ids) == expected


def test_everything_is_as_it_was_afterwards() -> None:
    policy = tiny_policy(perturb=0.1)
    before = {n: p.clone() for n, p in policy.model.named_parameters()}
    attention = policy.base.config._attn_implementation
    state = torch.get_rng_state()
    engine(policy).generate(RAGGED, 2, max_new_tokens=5)
    assert all(torch.equal(before[n], p) for n, p in policy.model.named_parameters())
    assert policy.model.training and policy.base.training
    assert policy.base.config._attn_implementation == attention
    assert torch.equal(state, torch.get_rng_state())
    assert [p for p in policy.model.parameters() if p.requires_grad] == policy.trainable_parameters()
    policy.logprobs(flat(engine(policy).generate(RAGGED, 2, max_new_tokens=5))).logprobs.sum().backward()
    assert all(p.grad is not None for p in policy.trainable_parameters())


def test_training_dropout_does_not_reach_generation() -> None:
    policy = tiny_policy(perturb=0.1, lora_dropout=0.5)
    first, second = (engine(policy).generate(RAGGED, 2, max_new_tokens=8, seed=1) for _ in range(2))
    assert first == second


def test_stops_at_the_end_token_and_keeps_it() -> None:
    policy = tiny_policy()
    completions = flat(engine(policy).generate(RAGGED, 8, max_new_tokens=25, seed=0))
    assert {c.finish_reason for c in completions} == {"stop", "length"}
    for completion in completions:
        assert EOS not in completion.token_ids[:-1]
        if completion.finish_reason == "stop":
            assert completion.token_ids[-1] == EOS
            assert completion.text == NumberTokenizer().decode(completion.token_ids[:-1])
        else:
            assert len(completion.token_ids) == 25 and completion.token_ids[-1] != EOS
        assert len(completion.logprobs) == len(completion.token_ids)


def test_prompts_and_versions_are_recorded_in_order() -> None:
    policy = tiny_policy()
    local = engine(policy)
    local.sync(policy, 4)
    groups = local.generate(RAGGED, 3, max_new_tokens=3)
    assert [[list(c.prompt_ids) for c in g] for g in groups] == [[p] * 3 for p in RAGGED]
    assert {c.policy_version for c in flat(groups)} == {4}


def test_each_completion_is_told_once_when_it_ends() -> None:
    told: list[tuple[int, int, Completion]] = []

    def note(place: int, member: int, completion: Completion) -> None:
        told.append((place, member, completion))

    policy = tiny_policy()
    local = LocalEngine(policy, policy.tokenizer, max_sequences=8)  # in two chunks
    groups = local.generate(RAGGED, 4, max_new_tokens=30, on_completion=note)
    assert {(i, k): c for i, k, c in told} == {(i, k): c for i, g in enumerate(groups) for k, c in enumerate(g)}
    assert len(told) == 4 * len(RAGGED)
    lengths = [len(c.token_ids) for place, _, c in told if place < 2]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]  # in the order in which they ended


def test_seed_decides_and_members_of_a_group_differ() -> None:
    policy = tiny_policy()
    first = engine(policy).generate(RAGGED, 6, max_new_tokens=10, seed=1)
    assert first == engine(policy).generate(RAGGED, 6, max_new_tokens=10, seed=1)
    assert first != engine(policy).generate(RAGGED, 6, max_new_tokens=10, seed=2)
    assert len({c.token_ids for c in first[0]}) > 1


def test_chunks_of_prompts_give_correct_logprobs() -> None:
    policy = tiny_policy(perturb=0.1)
    groups = LocalEngine(policy, policy.tokenizer, max_sequences=4).generate(RAGGED, 2, max_new_tokens=9)
    assert [len(g) for g in groups] == [2] * 4
    assert worst_difference(policy, flat(groups), Sampling()) < 1e-4


def test_samples_follow_the_distribution() -> None:
    policy = tiny_policy()
    prompt = [5, 6, 7]
    (group,) = LocalEngine(policy, policy.tokenizer, max_sequences=4000).generate([prompt], 4000, max_new_tokens=1)
    with torch.no_grad():
        probabilities = policy.base(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    counts = Counter(c.token_ids[0] for c in group)
    for token, probability in enumerate(probabilities.tolist()):
        spread = (probability * (1 - probability) / 4000) ** 0.5
        assert abs(counts[token] / 4000 - probability) < 5 * spread + 1e-3


def test_repacking_keeps_every_running_row() -> None:
    live = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]).bool()
    keep = repack(live)
    assert keep is not None
    assert keep.tolist() == [[0, 3], [9, 9]]
    assert repack(torch.ones(2, 3).bool()) is None


def greedy(policy: Policy, prompt: list[int], count: int) -> list[int]:
    """By the model's own forward passes of whole sequences."""
    ids = list(prompt)
    policy.model.eval()
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(policy.base(torch.tensor([ids])).logits[0, -1].argmax()))
    policy.model.train()
    return ids[len(prompt) :]


#: What lies between hidden state and logits, or a window that is declared without ``layer_types``.
OTHERS = {
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.1},
    "gemma3_text": {"final_logit_softcapping": 2.0, "head_dim": 8, "query_pre_attn_scalar": 8},
    "mistral": {"sliding_window": 40},
    "starcoder2": {"sliding_window": 40},
    "gpt2": {"n_embd": 32, "n_head": 4},
}


@pytest.mark.parametrize("family", OTHERS)
def test_other_families_are_sampled_as_their_own_forward_has_it(family: str) -> None:
    policy = tiny_policy(perturb=0.1, family=family, more=OTHERS[family], seed=3)
    local, prompt = engine(policy), [5, 6, 7, 8, 9]
    (completion,) = local.generate([prompt], temperature=0, max_new_tokens=20)[0]
    assert list(completion.token_ids) == greedy(policy, prompt, len(completion.token_ids))
    groups = local.generate(RAGGED, 2, max_new_tokens=12, seed=3)
    with torch.no_grad():
        for c in flat(groups):
            assert torch.allclose(torch.tensor(c.logprobs), plain_logprobs(policy.base.eval(), c), atol=1e-4)


@pytest.mark.parametrize("family", ["mistral", "starcoder2"])
def test_a_sequence_that_its_window_would_cut_is_refused(family: str) -> None:
    local = engine(tiny_policy(family=family, more={"sliding_window": 40}))
    local.generate([[5] * 20], max_new_tokens=20)
    with pytest.raises(ConfigError, match=r"window of 40 tokens, sequences here have up to 41; set generation\.engine"):
        local.generate([[5] * 20], max_new_tokens=21)


@pytest.mark.parametrize("family", ["gpt_neo", "gptj", "gpt_oss", "stablelm"])
def test_attention_that_is_not_the_interfaces_is_refused_at_the_start(family: str) -> None:
    more: dict[str, dict[str, Any]] = {
        "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
        "gptj": {"rotary_dim": 8},
        "gpt_oss": {
            "head_dim": 8,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "layer_types": ["full_attention"] * 2,
        },
        "stablelm": {},
    }
    with pytest.raises(
        ConfigError, match=rf"generation\.engine=local (would sample|cannot decode) {family}.*engine=vllm"
    ):
        engine(tiny_policy(family=family, more=more[family]))


def test_a_model_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    engine(policy)
    monkeypatch.setattr(LocalEngine, "generate", None)
    engine(policy)


def test_layers_that_are_no_attention_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"conv layers.*engine=vllm"):
        refuse(Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"]))


def test_empty_input() -> None:
    policy = tiny_policy()
    assert engine(policy).generate([], 3) == []
    with pytest.raises(ValueError, match="at least one token"):
        engine(policy).generate([[]], 3)


def test_a_vocabulary_of_many_blocks_is_sampled_by_its_probabilities() -> None:
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(700, generator=draw) * 2
    logits[torch.rand(700, generator=draw) < 0.5] = -torch.inf
    logprobs = logits.log_softmax(-1)
    even = (torch.arange(20_000) + 0.5) / 20_000
    edges = torch.tensor([0.0, 1e-300, 0.5, 1 - 2**-53], dtype=torch.float64)
    drawn = sample(logprobs.expand(20_004, -1), torch.cat([even.double(), edges]))
    assert logprobs[drawn].isfinite().all()
    share = torch.bincount(drawn, minlength=700) / 20_000
    assert float((share - logprobs.exp()).abs().max()) < 3e-4
    alone = torch.full((1, 700), -torch.inf)
    alone[0, 699] = 0.0
    assert [int(sample(alone, edge[None])) for edge in edges] == [699] * 4
