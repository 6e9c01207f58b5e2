"""Model types whose attention is computed here give the numbers of their own forward pass, with large random weights.

Small weights would hide a wrong mask. Other types are trained in padded rows.
"""

from typing import Any

import pytest
import torch
from helpers.tiny import greedy, logprobs_of, tiny_policy
from test_exact import HEADS, batch, differences, result

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.answering import Answerer, FrozenModel, Request
from llm_as_judge.policy.exactness import plain_logprobs
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.shareable import TESTED
from llm_as_judge.rl.update import Updater

EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip
#: What a type needs so that small sizes fit together, or so that an operation of it has an effect.
MORE: dict[str, dict[str, Any]] = {
    **HEADS,
    "gemma": {"head_dim": 8},
    "granitemoe": {**EXPERTS, "logits_scaling": 8.0},
    "mixtral": EXPERTS, "qwen2_moe": EXPERTS, "qwen3_moe": {**EXPERTS, "head_dim": 8}, "qwen3": {"head_dim": 8},
}  # fmt: skip
EVERY_TIME = ("qwen2", "qwen3", "llama", "mistral", "gemma", "phi3")


@pytest.mark.parametrize(
    "kind", [kind if kind in EVERY_TIME else pytest.param(kind, marks=pytest.mark.slow) for kind in sorted(TESTED)]
)
def test_a_tested_type_is_scored_sampled_and_answers_as_its_own_forward_pass(kind: str) -> None:
    policy, completions = tiny_policy(perturb=0.1, family=kind, more=MORE.get(kind)), batch("ragged", 8)
    tree, padded = result(policy, completions, "tree"), result(policy, completions, "padded")
    assert max(differences(tree, padded)) < 1e-3
    with torch.no_grad():
        own = torch.cat([plain_logprobs(policy.base.eval(), c) for c in completions])
    policy.base.train()
    assert float((padded[0] - own).abs().max()) < 1e-4
    prompts = list(dict.fromkeys(c.prompt_ids for c in completions))
    sampled = LocalEngine(policy, policy.tokenizer).generate(prompts, 2, max_new_tokens=12, seed=3)
    with torch.no_grad():
        for one in (c for group in sampled for c in group):
            found = torch.tensor(one.logprobs)
            assert torch.allclose(found, plain_logprobs(policy.base.eval(), one), atol=1e-4)
    model = FrozenModel(
        policy.base, policy.tokenizer, policy.eos_token_ids, policy.packed, policy.model.disable_adapter
    )
    request, ended = Request(list(prompts[0]), 12), list[Request]()
    answerer, waiting = Answerer(model, 2, 100), [request]
    while not ended:
        answerer.round(lambda: waiting.pop() if waiting else None, ended.append)
    with policy.model.disable_adapter():
        assert request.output == greedy(policy.base, prompts[0], len(request.output))


def test_another_type_is_trained_in_padded_rows_and_not_sampled_here() -> None:
    policy, completions = tiny_policy(family="olmo3"), batch("ragged", 8)
    updater = Updater(policy, TrainingConfig())
    assert updater.checked_layout(completions, Sampling()) == "padded"
    with pytest.raises(ConfigError, match=r"olmo3 is not one of .*qwen3.*shared_prefix=false"):
        logprobs_of(policy, completions, shared_prefix=True)
    with pytest.raises(ConfigError, match=r"olmo3 is not one of .*generation\.engine=vllm"):
        LocalEngine(policy, policy.tokenizer)
