"""The engine tinker with SkyRL's own server (JAX, on the CPU): what the small server of the tests cannot prove."""

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from helpers.cli import Said
from helpers.processes import free_port
from helpers.update_case import credited

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import ModelConfig, TrainingConfig
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.rl.tinker import TinkerLearner
from llm_as_judge.rl.update import Batch, Updater

PYTHON = os.environ.get("TINKER_PYTHON", "")
pytestmark = [
    pytest.mark.tinker,
    pytest.mark.skipif(not PYTHON, reason="TINKER_PYTHON is not set; make test-tinker sets it"),
]
EMBEDDED = load_config("config/embedded.yaml")
BACKEND = '{"max_lora_adapters": 12, "max_lora_rank": 8, "train_micro_batch_size": 8, "sample_max_num_sequences": 8}'
START_S = 300


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """SkyRL's server, which keeps what it saves in ``folder``; it is killed at the end."""
    words = [
        PYTHON, str(Path(__file__).parents[1] / "helpers/tinker_skyrl.py"), "--base-model", EMBEDDED.base_model.path,
        "--backend", "jax", "--port", str(port), "--backend-config", BACKEND,
        "--database-url", f"sqlite:///{folder}/state.db", "--checkpoints-base", str(folder / "saved"),
    ]  # fmt: skip
    log = folder / "log"
    with log.open("ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, start_new_session=True)
    try:
        end = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/healthz", timeout=5)
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
                time.sleep(0.5)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_three_steps_equal_our_own_and_survive_a_killed_server(servers: ExitStack, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{(port := free_port())}"
    settings = ["generation.engine=tinker", f"engine.base_url={address}", "lora_alpha=32", "lora_rank=8"]
    config, said = load_config("config/embedded.yaml", [*settings, "lora_target_modules=all-linear"]), Said()
    servers.enter_context(server(tmp_path, port))
    policy = TinkerPolicy(config, say=said.say)
    policy.share()
    assert policy._reduction == "mean" and any("ignores training.max_grad_norm" in line for line in said.lines)
    assert any("1.2 times as large as PEFT" in line for line in said.lines)
    local = Policy.load(EMBEDDED.base_model.path, ModelConfig(lora_rank=8, lora_alpha=32, device="cpu"))
    policy.save(tmp_path)
    local.load_adapter(tmp_path)
    policy.sync(None, 0)
    prompts = [[1, 50, 2, 300, 7], [9, 1200, 44]]
    rows = [c for group in policy.generate(prompts, 4, max_new_tokens=24, seed=3) for c in group]
    rows += [c for group in policy.generate(prompts[:1], 4, max_new_tokens=24, seed=4) for c in group]
    before = policy.logprobs(rows)
    for one, own, base in zip(rows, before, policy.reference(rows), strict=True):
        assert torch.allclose(torch.tensor(one.logprobs).double(), own, atol=2e-5)
        assert torch.allclose(base, own, atol=2e-5), "the adapter has no effect yet"
    training = TrainingConfig(
        beta=0.1, importance_sampling="token_truncate", learning_rate=1e-3, max_grad_norm=1e9, response_max_length=24
    )
    learners = TinkerLearner(policy), Updater(local, training)
    for learner in learners * 3:
        learner.update(Batch.of([credited(rows)], 0, training), PLAIN, 0)
    after = policy.logprobs(rows), local.known_logprobs(rows, PLAIN, "padded", 1 << 16)
    changes = [torch.cat(list(found)).double() - torch.cat(before) for found in after]
    assert float(torch.nn.functional.cosine_similarity(*changes, dim=0)) > 0.99
    saved = tmp_path / "after"
    saved.mkdir()
    policy.save(saved)
    servers.close()
    servers.enter_context(server(tmp_path, port))
    again = TinkerPolicy(config, say=said.say)
    again.load(saved)
    local.load_adapter(saved)
    for kept, restored, adapter in zip(
        after[0], again.logprobs(rows), local.known_logprobs(rows, PLAIN, "padded", 1 << 16), strict=True
    ):
        assert torch.allclose(kept, restored, atol=1e-6) and torch.allclose(kept, adapter.double(), atol=5e-5)
