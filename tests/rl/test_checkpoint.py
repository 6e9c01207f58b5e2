"""Claims about checkpoints on disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny import tiny_policy

from llm_as_judge.errors import ConfigError, DataError
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


def saved(folder: Path, *steps: int, run_id: str = "r") -> list[Path]:
    policy = tiny_policy()
    optimizer = torch.optim.AdamW(policy.trainable_parameters())
    return [checkpoint.save(folder, policy, optimizer, state(step), run_id=run_id) for step in steps]


def test_latest_is_the_highest_whole_step_and_ignores_the_rest(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "missing") is None
    saved(tmp_path, 9, 10)
    for name in (".step_11.77", "step_12.old", "notes"):
        (tmp_path / name).mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step_10"
    assert checkpoint.verify(tmp_path / "step_10") == "r"


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGES = {
    "one flipped bit": flip_a_bit,
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\x00garbage" * 50),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize(
    "name", ["state.pt", "optimizer.pt", "adapter_model.safetensors", "adapter_config.json", "checkpoint.json"]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    newest = saved(tmp_path, 1, 2)[1]
    damage(newest / name)
    told: list[str] = []
    assert checkpoint.latest(tmp_path, told.append) == tmp_path / "step_1"
    assert len(told) == 1 and str(newest) in told[0]
    policy = tiny_policy()
    with pytest.raises(DataError, match=r"step_2 is (damaged|no checkpoint)"):
        checkpoint.load(newest, policy, torch.optim.AdamW(policy.trainable_parameters()))


def test_a_checkpoint_of_another_shape_is_refused_in_words(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, 1)
    for other in (tiny_policy(rank=2), tiny_policy(hidden=16), tiny_policy(lora_target_modules=["q_proj"])):
        with pytest.raises((DataError, ConfigError), match="step_1"):
            checkpoint.load(path, other, torch.optim.AdamW(other.trainable_parameters()))


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    policy = tiny_policy()
    optimizer = torch.optim.AdamW(policy.trainable_parameters())
    checkpoint.save(tmp_path, policy, optimizer, state(1), config_text="old: 1\n")
    path = checkpoint.save(tmp_path, policy, optimizer, state(1), config_text="new: 1\n")
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
    with pytest.raises(DataError, match=r"checkpoint\.json is missing"):
        checkpoint.load(tmp_path, policy, torch.optim.AdamW(policy.trainable_parameters()))
