"""Several processes that share updates train the weights of one process, and end together."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.finished import EMBEDDED, as_options, run_settings
from helpers.processes import ROOT, program
from helpers.tiny import random_completions
from helpers.update_case import PRECISIONS, several, updater_of, warmed

from llm_as_judge.assembly.follow import load_together
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.rl.checkpoint import latest, step_of
from llm_as_judge.rl.loss import LossOutputs
from llm_as_judge.rl.ranks import ALONE, Alone, divide
from llm_as_judge.types import Completion

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
WITH_HELPERS = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, device: str) -> list[dict[str, Any]]:
    """Results of two processes of torchrun, on GPUs by NCCL."""
    kind = device.partition(":")[0]
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip(f"NCCL needs two GPUs, this machine has {torch.cuda.device_count()}")
    out = tmp_path_factory.mktemp("ranks") / "found"
    hidden = {} if kind == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    case = Path(__file__).parents[1] / "helpers/update_case.py"
    done = program(*TORCHRUN, case, out, kind, **WITH_HELPERS, **hidden)
    assert done.returncode == 0, done.stderr
    return [torch.load(f"{out}.{rank}") for rank in range(2)]


def apart(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-6), ("float64", 1e-8)])
def test_two_processes_train_weights_of_one(both: list[dict[str, Any]], dtype: str, most: float, device: str) -> None:
    if device != "cpu":
        most *= 10
        if dtype not in PRECISIONS["cuda"]:
            pytest.skip(f"FlexAttention has no {dtype}")
    alone = several(ALONE, getattr(torch, dtype), device)
    first, second = both[0][dtype], both[1][dtype]
    assert apart(first["weights"], second["weights"]) == 0, "the same bits on each"
    assert apart(first["weights"], alone["weights"]) <= most
    untrained = updater_of(ALONE, getattr(torch, dtype), device).policy.trainable_parameters
    assert apart(alone["weights"], [p.detach().cpu() for p in untrained]) > 1e-4
    assert first["updates"] == second["updates"] == alone["updates"] == 6
    # Each optimiser step sums its figures and, in one message, all gradients.
    assert (
        first["sums"]
        == second["sums"]
        == 6 * [len(LossOutputs._fields), sum(weight.numel() for weight in alone["weights"])]
    )
    for found, expected in zip(first["figures"], alone["figures"], strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.gpu
def test_two_processes_warm_up_like_one(both: list[dict[str, Any]], device: str) -> None:
    alone, (first, second) = warmed(ALONE, device), (found["warm-up"] for found in both)
    assert apart(first["weights"], second["weights"]) == 0
    most = 1e-6 if device == "cpu" else 1e-4  # float64 and float32
    assert apart(first["weights"], alone["weights"]) <= most
    assert first["losses"] == pytest.approx(alone["losses"], rel=most) and len(set(alone["losses"])) == 4
    assert first["steps"] == second["steps"] == 3


@pytest.mark.gpu
def test_a_failing_or_differing_rank_is_named_on_all(both: list[dict[str, Any]]) -> None:
    assert both[0]["memory"] == "RankFailed: rank 1: MemoryError: no room"
    assert both[1]["memory"] == "MemoryError: no room"
    assert all("step 1: the adapter differs between ranks" in found["other weights"] for found in both)


def test_a_device_that_several_processes_cannot_share_is_refused() -> None:
    class Two(Alone):
        size = 2

    with pytest.raises(ConfigError, match="each takes a GPU by its LOCAL_RANK"):
        load_together(load_config(EMBEDDED, ["device=cuda:1"]), Two())


def test_prompts_are_spread_by_tokens_and_split_only_if_there_are_too_few() -> None:
    group = [Completion("", (1, 2), (3,) * 4, (-1.0,) * 4, "stop")] * 4
    for size, few in ((2, [[0, 2], [1, 3]]), (3, [[0, 3], [1], [2]]), (8, [[], [], [], [], [0], [1], [2], [3]])):
        assert sorted(divide(group, size)) == few
        completions = random_completions(prompts=24, group=6, seed=size)
        random.Random(size).shuffle(completions)
        shares = divide(completions, size)
        assert sorted(i for share in shares for i in share) == list(range(len(completions)))
        assert all(share == sorted(share) for share in shares)
        prompts = [{completions[i].prompt_ids for i in share} for share in shares]
        assert sum(map(len, prompts)) == len({c.prompt_ids for c in completions}), "a prompt is on two ranks"
        loads = [
            sum(map(len, own)) + sum(len(completions[i].token_ids) for i in share)
            for own, share in zip(prompts, shares, strict=True)
        ]
        assert max(loads) - min(loads) <= max(len(c.prompt_ids) + 12 * 6 for c in completions)


def settings(address: str, folder: Path) -> list[str]:
    small = {"learning_rate": 1e-4, "rollout_batch_size": 2, "eval_problems": 1, "eval_every": 0, "max_steps": 45}
    less = {"baselines": "none", "executor.temperature": 0}
    return run_settings(folder, address, **small, **less)


@pytest.mark.slow
async def test_train_under_torchrun_ends_if_a_rank_dies_and_one_process_resumes(address: str, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints/nano/grpo_mixed"
    command = [*TORCHRUN, "-m", "llm_as_judge", "train", *as_options(settings(address, tmp_path))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = await asyncio.create_subprocess_exec(*command, **pipes)
    output = asyncio.create_task(both.communicate())
    while not (checkpoints / "step_2").exists():
        assert not output.done(), output.result()[1].decode()
        await asyncio.sleep(0.1)
    children = subprocess.check_output(["pgrep", "-P", str(both.pid)], text=True).split()
    (rank_1,) = (pid for pid in children if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    os.kill(int(rank_1), signal.SIGKILL)
    printed, errors = (text.decode() for text in await asyncio.wait_for(output, 60))
    assert both.returncode == 1
    assert [len(re.findall(rf"step +{n}/\d+ ", printed)) for n in (1, 2)] == [1, 1], "only rank 0 prints"
    assert "continue with: llm-as-judge train" in errors or "another process of this run has ended" in errors
    assert "Signal 9 (SIGKILL)" in errors

    newest = latest(checkpoints)
    assert newest is not None
    report = await GRPOTrainer(EMBEDDED, settings(address, tmp_path), resume=True).train(1)
    assert report is not None and report.step == step_of(newest) + 1
