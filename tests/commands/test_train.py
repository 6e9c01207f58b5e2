"""The main job end to end at small scale: real embedded server, real sandbox, real policy, real update."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from llm_as_judge.assembly.policy import load_author, newest_checkpoint
from llm_as_judge.commands.app import main
from llm_as_judge.commands.evaluate import run_evaluation
from llm_as_judge.commands.solve import run_solve
from llm_as_judge.commands.train import run_training
from llm_as_judge.config.loading import load_config
from llm_as_judge.embedded.server import EXECUTOR, MODEL_NAME
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.runlog import read_events
from llm_as_judge.types import Question

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def overrides(folder: Path, port: int, **more: object) -> list[str]:
    address = f"http://127.0.0.1:{port}/v1"
    chosen: dict[str, object] = {
        "executor.base_url": address,
        "judge.base_url": address,
        "tracking.report_to": "none",
        "max_steps": 2,
        "rollout_batch_size": 3,
        "num_return_sequences_in_group": 3,
        "eval_problems": 6,
        "max_problems": 12,
        "output_dir": folder / "checkpoints",
        "log_dir": folder / "logs",
        "results_dir": folder / "results",
        "persistence_dir": folder / "buffer",
        "guidance": ROOT / "config/guidance.yaml",
        "enhancer": ROOT / "config/operator_descriptions/nano.yaml",
        **more,
    }
    return [f"{name}={value}" for name, value in chosen.items()]


EMBEDDED = ROOT / "config/embedded.yaml"


def test_train_evaluates_trains_compares_and_resumes(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(EMBEDDED, overrides(tmp_path, port))
    command = ["train", "--config", str(EMBEDDED)]
    told = [*overrides(tmp_path, port), "eval_every=1"]
    assert main([*command, *(word for o in told for word in ("--set", o))]) == 0
    printed = capsys.readouterr().out
    for words in (
        "untrained policy", "trained policy", "single call everywhere", "per-domain oracle", "step 2/2",
        "step 1  validation: right", "Trained minus untrained policy:", "Models asked",
    ):  # fmt: skip
        assert words in printed
    saved = json.loads((tmp_path / "results/training/nano/grpo_mixed.json").read_text())
    assert set(saved) >= {"before", "after", "baselines", "seconds", "judge", "workflows"}
    assert set(saved["after"]) >= {"overall", "math", "qa", "code", "valid_rate"}
    assert (tmp_path / "results/training/nano/grpo_mixed.png").read_bytes().startswith(b"\x89PNG")
    kinds = [e["kind"] for e in read_events(tmp_path / "logs/nano/grpo_mixed.jsonl")]
    assert kinds.count("step") == 2
    assert kinds.count("rollout") == 2 * 3 * 3
    assert (tmp_path / "checkpoints/nano/grpo_mixed/step_2/adapter_model.safetensors").exists()
    assert saved["steps"] == 2
    assert newest_checkpoint(config) == tmp_path / "checkpoints/nano/grpo_mixed/step_2"

    assert saved["gain"]["value"] == pytest.approx(saved["after"]["overall"] - saved["before"]["overall"])

    less = {"evaluation.baselines": "false", "evaluation.plan_matrix": "false"}
    again = load_config(EMBEDDED, overrides(tmp_path, port, max_steps=3, **less))
    resumed = asyncio.run(run_training(again, resume=True))
    assert resumed.steps == 3
    assert (resumed.baselines, resumed.workflows) == ([], {})
    assert resumed.usage["executor"].calls > saved["usage"]["executor"]["calls"] > 0, "all sessions are summed"
    assert resumed.as_json()["before"] == saved["before"]
    steps = [e["step"] for e in read_events(tmp_path / "logs/nano/grpo_mixed.jsonl") if e["kind"] == "step"]
    assert steps == [1, 2, 3]


def test_training_starts_from_a_cold_start(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"sft_steps": 2, "workflows_per_problem": 2, "look_every": 2, "look_problems": 3, "look_samples": 1}
    chosen = overrides(tmp_path, port, sft_learning_rate=1e-4, **small)
    chosen += ["workflow.prompt=full", "prompt_max_length=4096"]  # which the nano policy has never seen
    assert main(["warmup", "--config", str(EMBEDDED), *(word for o in chosen for word in ("--set", o))]) == 0
    printed = capsys.readouterr().out
    assert "warm-up step 0: held-out loss" in printed and "warm-up step 2" in printed
    assert " x W" in printed, "what is wrong with the workflows that are not valid"
    adapter = tmp_path / "checkpoints/nano/grpo_mixed_warmup/step_2"
    assert f"--set model.adapter={adapter}" in printed.replace("\n", "")
    config = load_config(EMBEDDED, [*overrides(tmp_path, port), f"model.adapter={adapter.parent}"])
    warmed = [p.detach() for p in load_author(config).policy.trainable_parameters()]
    assert all(bool(p.any()) for p in warmed)
    report = asyncio.run(GRPOTrainer(config=config).train(num_steps=1))
    assert report is not None and report.step == 1 and report.kl < 0.1  # the reference is the warmed policy


def test_the_seeds_api_trains(tmp_path: Path, port: int) -> None:
    trainer = GRPOTrainer(config_path=EMBEDDED, overrides=overrides(tmp_path, port))
    report = asyncio.run(trainer.train(num_steps=1))
    assert report is not None
    assert report.step == 1
    assert 0 <= report.valid_rate <= 1


def test_any_endpoint_and_any_policy_run_the_same_job(tmp_path: Path, port: int) -> None:
    """A Qwen2.5-shaped policy from its configuration alone, executor and judge over HTTP by config/training.yaml."""
    shape = Qwen2Config(
        vocab_size=1610, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=False, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    policy = tmp_path / "policy"
    Qwen2ForCausalLM(shape).save_pretrained(policy)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (policy / name).write_bytes((EXECUTOR / name).read_bytes())
    train_file = tmp_path / "train.jsonl"
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i), "type": "math"} for i in range(1, 9)]
    train_file.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": "What is 90 + 9?", "answer": "99", "type": "math"}))
    chosen = overrides(
        tmp_path, port, **{
            "model_name": policy, "executor.model": MODEL_NAME, "judge.model": MODEL_NAME,
            "train_dataset": train_file, "test_dataset": tmp_path / "test.jsonl", "response_max_length": 24,
            "domain_ratios": "{math: 1.0, code: 0.0, qa: 0.0}", "gradient_checkpointing": "false", "dtype": "float32",
            "max_steps": 1,
        },
    )  # fmt: skip
    config = load_config(ROOT / "config/training.yaml", chosen)
    server = EmbeddedServer(config.executor.base_url)

    async def run() -> None:
        async with server:
            report = await GRPOTrainer(config=config).train()
            assert report is not None
            assert report.valid_rate == 0  # random weights write no workflow, and nothing pretends otherwise
            assert report.unscored == 0

    asyncio.run(run())


def test_solve_writes_a_workflow_and_traces_it(tmp_path: Path, port: int) -> None:
    config = load_config(EMBEDDED, overrides(tmp_path, port))
    assert newest_checkpoint(config) is None
    question = Question("q", "Tom has 3 apples. He buys 4 more. How many apples does Tom have now?", "math")
    solution = asyncio.run(run_solve(config, question, checkpoint=None, repair=True, fallback=True))
    assert solution.execution.outcome == "finished"
    assert solution.as_json()["trace"]
    assert "class Workflow" in solution.workflow


@pytest.mark.parametrize("file", ["gsm8k/test.jsonl", "humaneval/HumanEval.jsonl.gz", "squad_v2/dev-v2.0.json"])
def test_real_benchmarks_run_through(tmp_path: Path, port: int, file: str) -> None:
    path = DATA / file
    if not path.exists():
        pytest.skip(f"{path} is absent: real benchmark samples are not part of the repository")
    config = load_config(EMBEDDED, overrides(tmp_path, port))
    result = asyncio.run(run_evaluation(config, data=path, limit=4))
    metrics = result.as_json()["datasets"][0]["metrics"]
    assert metrics["problems"] + metrics["unscored"] == 4
    assert 0 <= metrics["accuracy"] <= 1


def test_an_endpoint_that_is_down_is_named_before_anything_starts(tmp_path: Path, port: int) -> None:
    chosen = overrides(tmp_path, port, **{"executor.provider": "openai", "judge.provider": "openai"})
    config = load_config(EMBEDDED, [*chosen, "executor.max_retries=0", "judge.max_retries=0"])
    with pytest.raises(ProviderError, match=str(port)):
        asyncio.run(GRPOTrainer(config=config).train())


def test_nothing_to_resume_is_said(tmp_path: Path, port: int) -> None:
    config = load_config(EMBEDDED, overrides(tmp_path, port))
    with pytest.raises(ConfigError, match="nothing to resume"):
        asyncio.run(GRPOTrainer(config=config, resume=True).train())


def test_the_same_seed_gives_the_same_run_with_an_executor_that_samples(tmp_path: Path, port: int) -> None:
    def run(name: str, seed: int) -> tuple[bytes, list[tuple[object, ...]]]:
        folder = tmp_path / name
        chosen = overrides(folder, port, seed=seed, rollout_batch_size=4, num_return_sequences_in_group=4)
        asyncio.run(GRPOTrainer(EMBEDDED, [*chosen, "executor.temperature=0.3"]).train())
        (log,) = (folder / "logs").rglob("*.jsonl")
        told = ("step", "problem", "text", "answer", "executor_tokens", "reward", "advantage")
        rollouts = [tuple(e[key] for key in told) for e in read_events(log) if e["kind"] == "rollout"]
        (adapter,) = folder.rglob("step_2/adapter_model.safetensors")
        return adapter.read_bytes(), rollouts

    first, again, other = run("first", 0), run("again", 0), run("other", 1)
    assert first[1] == again[1] and len(first[1]) == 32
    assert first[0] == again[0] != other[0]
