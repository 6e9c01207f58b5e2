"""The local engine, and its steps captured as graphs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.tiny import EOS, NumberTokenizer, greedy, logprobs_of, tiny_policy
from test_exact import HEADS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy import answering, forward, local, prefill
from llm_as_judge.policy.answering import Answerer, FrozenModel, Request
from llm_as_judge.policy.attention import row_hidden
from llm_as_judge.policy.exactness import plain_logprobs
from llm_as_judge.policy.local import LocalEngine, refuse_unsupported, repack, sample
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.types import Completion

RAGGED = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 11], [5, 6, 7, 8, 9, 10, 12, 13, 14], [5, 6, 7, 11]]


def engine(policy: Policy) -> LocalEngine:
    return LocalEngine(policy, policy.tokenizer)


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [c for g in groups for c in g]


def worst_difference(policy: Policy, completions: list[Completion], sampling: Sampling) -> float:
    with torch.no_grad():
        scores = logprobs_of(policy, completions, sampling)
    sampled = torch.tensor([p for c in completions for p in c.logprobs])
    return float((sampled - scores.logprobs[scores.mask].cpu()).abs().max())


@pytest.mark.gpu
def test_recorded_logprobs_equal_the_trainers(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_SEQUENCES", 8)
    wrong = []
    policy = tiny_policy(perturb=0.1, device=device)
    for prompts in (RAGGED, [[5]], [[4, 5], [6, 7, 8]]):
        for s in (Sampling(), Sampling(1.3, 0.8), Sampling(0.7, 0.9, 6)):
            length = 70 if len(prompts) == 2 else 12  # 70 exceeds the cache's first capacity
            groups = engine(policy).generate(prompts, 4, sampling=s, max_new_tokens=length, seed=3)
            if not worst_difference(policy, flat(groups), s) < 1e-4:
                wrong.append((prompts, s))
    assert not wrong


def test_passes_and_batches_stay_within_their_token_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, passes, batches = tiny_policy(perturb=0.1), list[int](), list[int]()
    whole = flat(engine(policy).generate(RAGGED, 2, sampling=Sampling(0.0), max_new_tokens=5))

    def counted(base: Any, tree: Any, attention: Any) -> Any:
        passes.append(tree.unique_tokens)
        return row_hidden(base, tree, attention)

    def batched(base: Any, prompts: list[list[int]], group: int) -> Any:
        batches.append(len(prompts))
        return prefill.prefill(base, prompts, group)

    split = engine(policy)
    monkeypatch.setattr(prefill, "row_hidden", counted)
    monkeypatch.setattr(local, "prefill", batched)
    monkeypatch.setattr(prefill, "PREFILL_TOKENS", 12)
    monkeypatch.setattr(local, "CACHE_TOKENS", 57)
    found = split.generate(RAGGED, 2, sampling=Sampling(0.0), max_new_tokens=5)
    # Sequences of a prompt need its length + 2 * 5 tokens; a pass takes prompts of 12 tokens together.
    assert batches == [3, 1] and passes == [10, 9, 4]
    assert [c.token_ids for c in flat(found)] == [c.token_ids for c in whole]


def test_low_precision_samples_alike_and_everything_is_restored() -> None:
    policy = tiny_policy(perturb=0.1)
    policy.model.base_model.model.to(torch.bfloat16)  # not merged
    groups = engine(policy).generate(RAGGED, 2, max_new_tokens=20, seed=1)
    assert worst_difference(policy, flat(groups), Sampling()) < 0.3
    policy = tiny_policy(perturb=0.1)
    before = {n: p.clone() for n, p in policy.model.named_parameters()}
    attention, state = policy.base.config._attn_implementation, torch.get_rng_state()
    groups = engine(policy).generate(RAGGED, 2, max_new_tokens=5)
    assert all(torch.equal(before[n], p) for n, p in policy.model.named_parameters())
    assert policy.model.training and policy.base.training
    assert policy.base.config._attn_implementation == attention and torch.equal(state, torch.get_rng_state())
    with policy.model.disable_adapter():
        assert not any(p.requires_grad for p in policy.trainable_parameters)
    assert [p for p in policy.model.parameters() if p.requires_grad] == policy.trainable_parameters
    logprobs_of(policy, flat(groups)).logprobs.sum().backward()
    assert all(p.grad is not None for p in policy.trainable_parameters)


def test_stops_at_the_end_token_and_keeps_it() -> None:
    completions = flat(engine(tiny_policy()).generate(RAGGED, 8, max_new_tokens=25, seed=0))
    assert {c.finish_reason for c in completions} == {"stop", "length"}
    for completion in completions:
        stopped = completion.finish_reason == "stop"
        assert EOS not in completion.token_ids[:-1] and (completion.token_ids[-1] == EOS) == stopped
        assert stopped or len(completion.token_ids) == 25
        assert completion.text == NumberTokenizer().decode([i for i in completion.token_ids if i != EOS])
        assert len(completion.logprobs) == len(completion.token_ids)


def test_completions_are_reported_when_they_end_with_prompt_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[int, int, Completion]] = []
    policy = tiny_policy()
    monkeypatch.setattr(local, "MAX_SEQUENCES", 8)  # in two chunks
    made = engine(policy)
    made.sync(policy, 4)
    groups = made.generate(RAGGED, 4, max_new_tokens=30, on_completion=lambda *one: ended.append(one))
    assert [[list(c.prompt_ids) for c in g] for g in groups] == [[p] * 4 for p in RAGGED]
    assert {c.policy_version for c in flat(groups)} == {4} and len({c.token_ids for c in groups[0]}) > 1
    same, other = (made.generate(RAGGED, 4, max_new_tokens=30, seed=seed) for seed in (0, 1))
    assert same == groups != other
    assert {(i, k): c for i, k, c in ended} == {(i, k): c for i, g in enumerate(groups) for k, c in enumerate(g)}
    assert len(ended) == 4 * len(RAGGED)
    lengths = [len(c.token_ids) for place, _, c in ended if place < 2]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


def test_ids_are_drawn_by_their_probabilities_and_repacking_keeps_live_rows() -> None:
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
    packed = repack(torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]).bool())
    assert packed is not None and repack(torch.ones(2, 3).bool()) is None
    assert packed[0].tolist() == [[0, 3], [9, 9]] and packed[1].tolist() == [[True, True], [True, False]]


#: Operations between hidden state and logits, or a window without ``layer_types``.
OTHERS: dict[str, Any] = {**HEADS, "mistral": {"sliding_window": 40}}


@pytest.mark.gpu
@pytest.mark.parametrize("family", OTHERS)
def test_samples_are_those_of_the_models_own_forward_pass(family: str, device: str) -> None:
    policy = tiny_policy(perturb=0.1, family=family, more=OTHERS[family], seed=3, device=device)
    local, prompt = engine(policy), [5, 6, 7, 8, 9]
    (completion,) = local.generate([prompt], sampling=Sampling(0.0), max_new_tokens=20)[0]
    assert list(completion.token_ids) == greedy(policy.model, prompt, len(completion.token_ids))
    groups = local.generate(RAGGED, 2, max_new_tokens=12, seed=3)
    with torch.no_grad():
        for c in flat(groups):
            assert torch.allclose(torch.tensor(c.logprobs), plain_logprobs(policy.base.eval(), c).cpu(), atol=1e-4)


def test_sequences_beyond_a_window_and_other_attention_are_refused() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, **factors}
    phi3 = {"rope_parameters": rope, "original_max_position_embeddings": 40}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("mistral", {"sliding_window": 40}, r"window of 40 tokens, sequences here have up to 41"),
        ("starcoder2", {"sliding_window": 40}, r"window of 40 tokens, sequences here have up to 41"),
        ("phi3", phi3, r"rope_type 'longrope'.*beyond 40 tokens"),
    ]
    for family, more, reason in cases:
        local = engine(tiny_policy(family=family, more=more))
        local.generate([[5] * 20], max_new_tokens=20)
        with pytest.raises(ConfigError, match=rf"{reason}.*; set generation\.engine=vllm"):
            local.generate([[5] * 20], max_new_tokens=21)
    for kind in ("gpt_neo", "gptj", "lfm2"):
        with pytest.raises(ConfigError, match=rf"local: {kind} is not one of .*set generation\.engine=vllm"):
            refuse_unsupported(AutoConfig.for_model(kind))


def test_an_adapter_on_a_head_tied_to_the_embedding_samples_what_the_trainer_scores() -> None:
    for dtype, most in (("float32", 1e-4), ("bfloat16", 0.1)):
        policy = tiny_policy(perturb=0.1, dtype=dtype, lora_target_modules=["q_proj", "lm_head"])
        sampled = flat(engine(policy).generate(RAGGED, 2, max_new_tokens=6, seed=3))
        assert worst_difference(policy, sampled, Sampling()) < most, dtype


PROMPTS = [[4, 5, 6, 7], [4, 5, 8], [4, 5, 6, 9, 10, 11]]


class Recorder(TorchDispatchMode):
    """Records operations with the very tensors that they read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def repeat(self) -> None:
        for func, args, kwargs, out in self.calls:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def captured() -> Iterator[list[int]]:
    """Numbers of repetitions of each captured step; a repetition runs no Python of the model."""
    repeated: list[int] = []

    def traced(step: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
        step()
        with Recorder() as recorder:
            result = step()
        place = len(repeated)
        repeated.append(0)

        def replay() -> Tensor:
            repeated[place] += 1
            recorder.repeat()
            return result.clone()

        return replay

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "replayable", traced)
        patch.setattr(answering, "replayable", traced)
        yield repeated


def sampled(policy: Policy) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    groups = LocalEngine(policy, policy.tokenizer).generate(
        PROMPTS, 8, sampling=Sampling(1.0), max_new_tokens=90, seed=1
    )
    return [(c.token_ids, c.logprobs) for group in groups for c in group]


def test_sampling_repeats_a_step_until_its_shapes_change(captured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    policy, own = tiny_policy(perturb=0.1), prefill.prefill
    with monkeypatch.context() as patch:
        patch.setattr(local, "replayable", forward.replayable)
        expected = sampled(policy)

    def fixed(base: object, prompts: list[list[int]], group: int) -> tuple[Tensor, prefill.Store]:
        hidden, store = own(base, prompts, group)
        store.fixed = True
        return hidden, store

    monkeypatch.setattr(local, "prefill", fixed)
    found = sampled(policy)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    longest = max(len(ids) for ids, _ in found)
    assert longest > 64 and sum(captured) == longest - 1 and 2 < len(captured) < 12


def test_answers_repeat_a_step_for_each_length(captured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_LENGTH_STEP", 16)
    policy = tiny_policy(perturb=0.1)
    frozen = FrozenModel(policy.base, policy.tokenizer, frozenset(), policy.packed, policy.model.disable_adapter)

    def answers() -> list[list[int]]:
        answerer = Answerer(frozen, 2, 128)
        answerer.sizes = (2,)
        waiting = [Request(prompt, most) for prompt, most in zip(PROMPTS, (30, 5, 41), strict=True)]
        asked = list(waiting)
        while waiting or answerer.busy:
            answerer.round(lambda: waiting.pop(0) if waiting else None, lambda request: None)
        return [request.output for request in asked]

    found, steps = answers(), len(captured)
    monkeypatch.setattr(answering, "replayable", forward.replayable)
    assert found == answers() and len({tuple(ids) for ids in found}) == 3
    assert 3 < steps < 20 < sum(captured)
