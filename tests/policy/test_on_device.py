"""What differs on a GPU: FlexAttention, bfloat16, prefill in padded passes. ``--device cuda:0`` runs it there.

``llm-as-judge selftest`` runs this and all other tests marked ``gpu``. They run with ``--device cpu`` as well.
"""

from typing import Any

import pytest
import torch
from helpers.tiny import tiny_policy
from helpers.update_case import batch as ragged
from helpers.update_case import update
from test_exact import WHOLE, batch, completion, differences, result

from llm_as_judge.policy.attention import kernel_for
from llm_as_judge.policy.exactness import check_layout
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("named")]
#: Prompts of 2 to 20 blocks of FlexAttention, and one that is shorter than a block.
LONG = (260, 500, 1200, 2500, 60)


@pytest.fixture
def named(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--device"):
        pytest.skip("--device is not given; `llm-as-judge selftest` runs this on a GPU")


def policy_on(device: str, dtype: str = "float32", **settings: object) -> Policy:
    more = {"initializer_range": 0.05, "head_dim": 32}
    return tiny_policy(perturb=0.05, hidden=128, more=more, device=device, dtype=dtype, **settings)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("budget", [WHOLE, 30])
@pytest.mark.parametrize("kind", ["ragged", "deep", "unshared"])
def test_shared_prefixes_equal_padded_rows(kind: str, budget: int, checkpointing: bool, device: str) -> None:
    policy, completions = policy_on(device, gradient_checkpointing=checkpointing), batch(kind, 1)
    assert kernel_for(policy.device) == ("flex" if device.startswith("cuda") else "cascade")
    expected = result(policy, completions, "padded")
    scores, gradients = differences(result(policy, completions, "tree", budget), expected)
    assert scores < 1e-4 and gradients < 1e-3
    assert max(differences(result(policy, completions, "tree", budget, "dense"), expected)) < 1e-3


def test_rows_of_many_blocks_equal_padded_rows_without_a_new_compilation(device: str) -> None:
    policy = policy_on(device)

    def compared(length: int) -> None:
        prompt = tuple(4 + i * i % 19 for i in range(length))
        completions = [completion(prompt, (5 + i, 6, 7)) for i in range(3)]
        found, expected = (result(policy, completions, layout) for layout in ("tree", "padded"))  # type: ignore[arg-type]
        assert max(differences(found, expected)) < 1e-3, length

    compared(LONG[0])
    torch._dynamo.utils.counters.clear()
    for length in LONG[1:] if device.startswith("cuda") else LONG[2::2]:
        compared(length)
    # torch specialises on a single block.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 1


def test_bfloat16_is_as_close_to_float32_as_padded_rows(device: str) -> None:
    precise, rough, completions = policy_on(device), policy_on(device, "bfloat16"), batch("deep", 2)
    expected = result(precise, completions, "padded")[0]
    layouts: tuple[Layout, ...] = ("tree", "padded")
    tree, padded = (float((result(rough, completions, x)[0] - expected).abs().mean()) for x in layouts)
    assert tree < 1.5 * padded
    for layout in layouts:
        check_layout(rough, completions, Sampling(), layout)


def test_an_update_in_bfloat16_is_that_of_padded_rows_and_of_float32(device: str) -> None:
    """Three AdamW steps on one batch, in stages: the last gradient and the trained weights."""
    settings: dict[str, Any] = {"ppo_epochs": 3, "beta": 0.05, "micro_batch_tokens": 60, "learning_rate": 1e-4}
    completions = ragged(policy_on(device), 0.3)
    found = {}
    for dtype, shared in (("float32", False), ("bfloat16", False), ("bfloat16", True)):
        policy = policy_on(device, dtype, gradient_checkpointing=True)
        start = torch.cat([p.detach().flatten() for p in policy.trainable_parameters])
        report, gradient = update(policy, completions, shared_prefix=shared, **settings)
        trained = torch.cat([p.detach().flatten() for p in policy.trainable_parameters])
        assert trained.dtype == torch.float32 and float((trained - start).abs().max()) > 1e-4, "weights stay float32"
        found[dtype, shared] = report, torch.cat([g.flatten() for g in gradient]), trained - start
    exact = found.pop(("float32", False))
    for case, (report, gradient, moved) in found.items():
        assert report.loss == pytest.approx(exact[0].loss, abs=0.05), case
        for ours, theirs in ((gradient, exact[1]), (moved, exact[2])):
            assert torch.nn.functional.cosine_similarity(ours, theirs, dim=0) > 0.95, case
