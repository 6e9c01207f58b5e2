"""The vLLM client with a real vLLM server and the nano policy (`make test-vllm`); skipped without VLLM_PYTHON."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.vllm import START_S, Server, needs_vllm
from test_local_engine import flat, worst_difference

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.vllm import VLLMEngine

ROOT = Path(__file__).parents[2]
pytestmark = needs_vllm


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_author(load_config(ROOT / "config/embedded.yaml")).policy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = load_config(ROOT / "config/embedded.yaml").base_model.path
    served = Server(model, tmp_path_factory.mktemp("vllm") / "log", "nano")
    served.start()
    try:
        served.wait()
        yield served
    finally:
        served.stop()


def perturb(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.trainable_parameters:
        parameter.data.normal_(0, 0.03, generator=generator)


def prompts(policy: Policy) -> list[list[int]]:
    system = "Write a workflow. " * 12
    return [[int(i) for i in policy.tokenizer(system + text).input_ids] for text in ("What is 2 + 3?", "Who wrote it?")]


def test_each_version_samples_with_its_own_weights(server: Server, policy: Policy, tmp_path: Path) -> None:
    engine = VLLMEngine(EngineConfig(base_url=server.url), "nano", tmp_path, policy.tokenizer)
    assert "nano" in engine.check()
    sampling = Sampling(0.8, 0.9, 20)
    seen = []
    for version in (1, 2, 3):
        perturb(policy, version)
        engine.sync(policy, version)
        (name,) = (p.name for p in tmp_path.iterdir())
        assert name.startswith(f"policy-v{version}-") and set(engine.check()) == {"nano", name}
        groups = engine.generate(prompts(policy), 4, sampling=sampling, max_new_tokens=24, seed=5)
        assert [len(g) for g in groups] == [4, 4] and {c.policy_version for g in groups for c in g} == {version}
        # The server's log-probs are those of the sampling distribution, and equal the trainer's.
        assert worst_difference(policy, flat(groups), sampling) < 2e-3
        seen.append(groups)
    assert seen[0] != seen[1] != seen[2]
    assert worst_difference(policy, flat(seen[0]), sampling) > 2e-2  # older weights differ


def test_greedy_tokens_equal_the_local_engines(server: Server, policy: Policy, tmp_path: Path) -> None:
    perturb(policy, 9)
    engine, local = (
        VLLMEngine(EngineConfig(base_url=server.url), "nano", tmp_path, policy.tokenizer),
        LocalEngine(policy, policy.tokenizer),
    )
    engine.sync(policy, 9)
    ours, theirs = (e.generate(prompts(policy), 1, sampling=Sampling(0), max_new_tokens=32) for e in (local, engine))
    assert [[c.token_ids for c in g] for g in ours] == [[c.token_ids for c in g] for g in theirs]


def test_a_restart_is_survived_and_the_adapter_loaded_again(server: Server, policy: Policy, tmp_path: Path) -> None:
    engine = VLLMEngine(EngineConfig(base_url=server.url, restart_s=START_S), "nano", tmp_path, policy.tokenizer)
    perturb(policy, 12)
    engine.sync(policy, 12)
    server.stop()
    threading.Timer(1.0, server.start).start()
    groups = engine.generate(prompts(policy), 2, max_new_tokens=16)  # waits for the server
    assert set(engine.check()) == {"nano", *(p.name for p in tmp_path.iterdir())}
    assert worst_difference(policy, flat(groups), Sampling()) < 2e-3
