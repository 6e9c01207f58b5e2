"""A step that is done is kept, though the disk has no room for what is to be written of it."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
import torch
from helpers.tiny import Events, ListBuffer, bandit_trainer
from safetensors import SafetensorError

from llm_as_judge.events import Event
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.trainer import Trainer


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.parts.policy.trainable_parameters()]


@pytest.mark.parametrize("kind", ["rollout", "step", "buffer"])
async def test_a_step_that_the_log_or_the_buffer_has_no_room_for_is_saved(tmp_path: Path, kind: str) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "log.jsonl")

    class FullLog(Events):
        def log(self, event: Event) -> None:
            if event.__struct_config__.tag == kind and getattr(event, "step", 0) == 3:
                raise full
            super().log(event)

    class FullBuffer(ListBuffer):
        saves = 0

        def save(self) -> None:
            self.saves += 1
            if kind == "buffer" and self.saves == 3:
                raise full

    trainer = bandit_trainer(tmp_path, events=FullLog(), buffer=FullBuffer())
    with pytest.raises(OSError, match="No space left"):
        await trainer.train(5)
    assert checkpoint.latest(tmp_path) == tmp_path / "step_3"
    clean = bandit_trainer(tmp_path / "clean", buffer=ListBuffer())
    await clean.train(4)
    resumed = bandit_trainer(tmp_path, buffer=ListBuffer())
    resumed.resume(tmp_path / "step_3")
    await resumed.train(1)
    assert all(torch.equal(a, b) for a, b in zip(weights(clean), weights(resumed), strict=True))
    assert clean.parts.buffer is not None and resumed.parts.buffer is not None
    assert clean.parts.buffer.state_dict() == resumed.parts.buffer.state_dict()


async def test_a_log_without_room_for_the_checkpoints_line_does_not_deny_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class FullLog(Events):
        def log(self, event: Event) -> None:
            if event.__struct_config__.tag in ("step", "checkpoint"):
                raise OSError(errno.ENOSPC, "No space left on device", "log.jsonl")

    with caplog.at_level(logging.WARNING), pytest.raises(OSError, match="No space left"):
        await bandit_trainer(tmp_path, events=FullLog()).train(2)
    assert checkpoint.latest(tmp_path) == tmp_path / "step_1"
    assert not caplog.records


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    ],
    ids=["safetensors", "torch"],
)
def test_what_torch_and_safetensors_call_a_full_disk_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Adapter:
        def save_adapter(self, directory: Path) -> None:
            raise error

        def load_adapter(self, directory: Path) -> None: ...

    def refuse(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(OSError, match="step_4") as caught:
        checkpoint.save(tmp_path, Adapter(), optimizer, checkpoint.TrainingState(4, checkpoint.random_states()))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "step_4"))
    assert list(tmp_path.iterdir()) == []
