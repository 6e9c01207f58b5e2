"""What scripts/launch_vllm.sh starts, told by a stand-in for Python: servers that share no GPU's memory twice."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config

ROOT = Path(__file__).parents[2]


def launch(folder: Path, gpus: int, *arguments: str, **environment: str) -> tuple[str, dict[str, str]]:
    """Devices and options of the server that would be started on a machine with so many GPUs."""
    python, smi = folder / "python", folder / "nvidia-smi"
    python.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES"\necho "$@"\n')
    smi.write_text(f"#!/bin/sh\nseq {gpus}\n")
    for file in (python, smi):
        file.chmod(0o755)
    here = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": str(python), **environment}
    done = subprocess.run(
        ["bash", ROOT / "scripts/launch_vllm.sh", *arguments], env=here, capture_output=True, text=True, check=True
    )
    devices, line = done.stdout.splitlines()
    words = line.split()
    return devices, {word: after for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


@pytest.mark.parametrize("gpus", [2, 8])
def test_executor_and_policy_have_ports_of_the_configuration_and_share_no_gpu(tmp_path: Path, gpus: int) -> None:
    executor, policy = launch(tmp_path, gpus), launch(tmp_path, gpus, "policy")
    assert (executor[0], policy[0]) == (str(gpus - 1), "0")
    config = load_config(ROOT / "config/training.yaml")
    assert Config().executor.base_url == f"http://127.0.0.1:{executor[1]['--port']}/v1"
    assert f"VLLM_BASE_URL=http://localhost:{policy[1]['--port']}/v1" in (ROOT / ".env.example").read_text("utf-8")
    assert executor[1]["--served-model-name"] == config.executor.model
    assert policy[1]["--model"] == config.base_model.path
    training = config.training
    assert int(policy[1]["--max-model-len"]) >= training.prompt_max_length + training.response_max_length
    assert int(policy[1]["--max-lora-rank"]) >= config.model.lora_rank
    assert float(policy[1]["--gpu-memory-utilization"]) < 0.5  # the trainer is there too


def test_gpus_and_options_may_be_chosen(tmp_path: Path) -> None:
    devices, options = launch(tmp_path, 4, "--max-model-len", "32768", EXECUTOR_GPUS="2,3")
    assert (devices, options["--tensor-parallel-size"], options["--max-model-len"]) == ("2,3", "2", "32768")
