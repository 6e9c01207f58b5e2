"""Claims about checkpoints on disk."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_policy

from llm_as_judge.errors import DataError
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.checkpoint import TrainingState


def state(step: int) -> TrainingState:
    return TrainingState(step, checkpoint.random_states(), {"position": 3}, {"texts": ["a"]}, {"updates": step})


def test_a_failed_save_leaves_no_checkpoint(tmp_path: Path) -> None:
    class Broken:
        def save_adapter(self, directory: Path) -> None:
            raise OSError("disk full")

        def load_adapter(self, directory: Path) -> None: ...

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path, Broken(), optimizer, state(5))
    assert checkpoint.latest(tmp_path) is None


def test_latest_is_the_highest_step_and_ignores_the_rest(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "missing") is None
    for name in ("step_9", "step_10", ".step_11.77", "step_12.old", "notes"):
        (tmp_path / name).mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step_10"


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    policy = tiny_policy()
    optimizer = torch.optim.AdamW(policy.trainable_parameters())
    checkpoint.save(tmp_path, policy, optimizer, state(1), "old: 1\n")
    path = checkpoint.save(tmp_path, policy, optimizer, state(1), "new: 1\n")
    assert (path / "config.yaml").read_text() == "new: 1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["step_1"]
    assert {"adapter_model.safetensors", "adapter_config.json"} <= {p.name for p in path.iterdir()}


def test_random_states_survive_the_disk(tmp_path: Path) -> None:
    policy = tiny_policy()
    optimizer = torch.optim.AdamW(policy.trainable_parameters())
    random.gauss(0, 1)
    np.random.normal()
    path = checkpoint.save(tmp_path, policy, optimizer, state(1))

    def draws() -> tuple[float, ...]:
        return (
            random.gauss(0, 1),
            random.random(),
            np.random.normal(),
            np.random.rand(),
            float(torch.rand(())),
        )

    expected = draws()
    loaded = checkpoint.load(path, policy, optimizer)
    checkpoint.restore_random_states(loaded.random_states)
    assert draws() == expected
    assert (loaded.step, loaded.sampler, loaded.buffer) == (1, {"position": 3}, {"texts": ["a"]})


def test_a_directory_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    policy = tiny_policy()
    with pytest.raises(DataError, match=r"adapter_config\.json is missing"):
        checkpoint.load(tmp_path, policy, torch.optim.AdamW(policy.trainable_parameters()))
