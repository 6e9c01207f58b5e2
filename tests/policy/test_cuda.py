"""FlexAttention through the model, in float32 and bfloat16; skipped without a CUDA device."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny import tiny_policy
from test_exact import WHOLE, batch, differences, result
from test_local_engine import RAGGED, flat, worst_difference

from llm_as_judge.policy import prefill
from llm_as_judge.policy.attention import kernel_for
from llm_as_judge.policy.exactness import check_exact
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Layout, Sampling

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def policy_on_gpu(dtype: str, **settings: object) -> Policy:
    more = {"initializer_range": 0.05, "head_dim": 32}
    return tiny_policy(perturb=0.05, hidden=128, more=more, device="cuda", dtype=dtype, **settings)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("budget", [WHOLE, 30])
@pytest.mark.parametrize("kind", ["ragged", "deep", "unshared"])
def test_flex_equals_padded_rows(kind: str, budget: int, checkpointing: bool) -> None:
    policy, completions = policy_on_gpu("float32", gradient_checkpointing=checkpointing), batch(kind, 1)
    assert kernel_for(policy.device) == "flex"
    expected = result(policy, completions, "padded")
    scores, gradients = differences(result(policy, completions, "tree", budget), expected)
    assert scores < 1e-4 and gradients < 1e-3
    assert max(differences(result(policy, completions, "tree", budget, "dense"), expected)) < 1e-3


def test_bfloat16_is_as_close_to_float32_as_padded_rows() -> None:
    precise, rough, completions = policy_on_gpu("float32"), policy_on_gpu("bfloat16"), batch("deep", 2)
    expected = result(precise, completions, "padded")[0]
    layouts: tuple[Layout, ...] = ("tree", "padded")
    tree, padded = (float((result(rough, completions, x)[0] - expected).abs().mean()) for x in layouts)
    assert tree < 1.5 * padded
    check_exact(rough, completions, Sampling())


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-3), ("bfloat16", 0.5)])
def test_the_local_engine_records_the_trainers_logprobs(
    dtype: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_on_gpu(dtype)
    monkeypatch.setattr(prefill, "PREFILL_TOKENS", 7)
    groups = LocalEngine(policy, policy.tokenizer).generate(RAGGED, 4, max_new_tokens=70, seed=1)
    assert worst_difference(policy, flat(groups), Sampling()) < most


def test_new_row_lengths_need_no_new_compilation() -> None:
    policy = policy_on_gpu("float32")
    torch._dynamo.utils.counters.clear()
    for seed in range(12):
        result(policy, batch("ragged", seed), "tree")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
