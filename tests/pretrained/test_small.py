"""Qwen2.5-Coder-0.5B-Instruct as policy and executor in one process, with config/small.yaml.

QWEN_SMALL_PATH names a folder or a GGUF file of it. Two steps show that every part works; docs/reports/real.md has the
results of a whole run.
"""

import json
import os
from pathlib import Path

import pytest
from helpers.finished import as_options
from helpers.run_logs import read_events

from llm_as_judge.commands.app import main

WEIGHTS = os.environ.get("QWEN_SMALL_PATH", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(WEIGHTS).exists() or not WEIGHTS,
        reason="QWEN_SMALL_PATH is not set; let it name a folder or GGUF file of Qwen2.5-Coder-0.5B-Instruct",
    ),
]


def test_one_small_model_trains_as_policy_and_executor_on_this_cpu(tmp_path: Path) -> None:
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i), "type": "math"} for i in range(1, 9)]
    for name, part in (("train", rows[:6]), ("test", rows[6:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)), encoding="utf-8")
    changes = {
        "model.model_name": "qwen25-coder-0.5b", "train_dataset": tmp_path / "train.jsonl",
        "test_dataset": tmp_path / "test.jsonl", "domain_ratios": "{math: 1.0, code: 0.0, qa: 0.0}",
        "eval_problems": 2, "max_steps": 2, "rollout_batch_size": 2, "num_return_sequences_in_group": 2,
        "response_max_length": 48, "executor.max_tokens": 48, "executor.concurrency": 4, "workflow.prompt": "short",
        "workflow.prefill": "true", "output_dir": tmp_path / "checkpoints", "log_dir": tmp_path / "logs",
        "results_dir": tmp_path / "results",
    }  # fmt: skip
    options = as_options([f"{name}={value}" for name, value in changes.items()])
    assert main(["train", "--config", "config/small.yaml", *options]) == 0

    steps = [e for e in read_events(next(tmp_path.glob("logs/*/small.jsonl"))) if e["kind"] == "step"]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["unscored"] == 0 for step in steps)
    results = json.loads(next(tmp_path.glob("results/training/*/small.json")).read_text())
    assert results["usage"]["executor"]["calls"] >= 2, "the baseline asks the same weights, without the adapter"
    assert results["usage"]["executor"]["failed"] == 0


def test_the_published_adapter_writes_workflows_that_run(tmp_path: Path) -> None:
    rows = [{"problem": f"A box holds {i} eggs. How many are in 3?", "answer": "x", "type": "math"} for i in (2, 5, 7)]
    problems = tmp_path / "eggs.jsonl"
    problems.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    options = as_options(["executor.max_tokens=8", "executor.concurrency=4", f"results_dir={tmp_path}"])
    adapter = ("--checkpoint", "examples/qwen2.5-coder-0.5b")
    assert main(["evaluate", "--config", "config/small.yaml", "--data", str(problems), *adapter, *options]) == 0
    (result,) = tmp_path.glob("evaluation/*_results.json")
    (row,) = json.loads(result.read_text())["datasets"]
    assert row["metrics"]["valid_rate"] > 0.5, "without the adapter one workflow in fifty runs"
