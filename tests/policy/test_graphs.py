"""Decoding steps that are captured once and repeated: as a list of operations here, as a CUDA graph on a GPU."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.tiny import tiny_policy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llm_as_judge.policy import answering, forward, local, prefill
from llm_as_judge.policy.answering import Answerer, FrozenModel, Request
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling

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
