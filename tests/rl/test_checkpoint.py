"""Files of a run: checkpoints are written as a whole; runs are identified, locked, moved aside and never mixed."""

import errno
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from helpers.cli import Said
from helpers.run_logs import read_events
from helpers.tiny import Events, ListBuffer, alike, bandit_trainer, tiny_policy
from safetensors import SafetensorError

from llm_as_judge.assembly.policy import newest_checkpoint
from llm_as_judge.assembly.run_folder import RunFolder, Started, open_folder
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.events import Event, RunEvent
from llm_as_judge.files import write_json
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.checkpoint import TrainingState
from llm_as_judge.rl.ranks import ALONE
from llm_as_judge.rl.update import SharedAdamW


def state(step: int) -> TrainingState:
    return TrainingState(step, checkpoint.random_states(), {"position": 3}, {"texts": ["a"]}, {"updates": step})


def optimizer_of(policy: Policy) -> SharedAdamW:
    return SharedAdamW(policy, ALONE, 1e-3, 0.0)


def saved(folder: Path, *steps: int, run_id: str = "r") -> list[Path]:
    policy = tiny_policy()
    return [checkpoint.save(folder, optimizer_of(policy), state(step), run_id=run_id) for step in steps]


def test_latest_is_the_highest_complete_step_and_another_shape_is_refused(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "missing") is None
    saved(tmp_path, 9, 10)
    for name in (".step_11.77", "step_12.old", "notes"):
        (tmp_path / name).mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step_10"
    assert checkpoint.verify(tmp_path / "step_10") == "r"
    with pytest.raises(DataError, match=r"checkpoint\.json is missing"):
        checkpoint.verify(tmp_path)
    (path,) = saved(tmp_path, 1)
    for other in (tiny_policy(rank=2), tiny_policy(hidden=16), tiny_policy(lora_target_modules=["q_proj"])):
        with pytest.raises((DataError, ConfigError), match="step_1"):
            checkpoint.load(path, optimizer_of(other))


def test_the_newest_and_the_best_validated_checkpoints_are_kept(tmp_path: Path) -> None:
    for path, score in zip(saved(tmp_path, 1, 2, 3, 4, 5), (0.1, 0.9, 0.9, None, None), strict=True):
        write_json(path / checkpoint.VALIDATION, {"overall": score})
    for keep, left in ((5, {1, 2, 3, 4, 5}), (1, {3, 5})):
        checkpoint.prune(tmp_path, keep)
        assert set(map(checkpoint.step_of, tmp_path.iterdir())) == left
    assert checkpoint.verify(tmp_path / "step_3") == checkpoint.verify(tmp_path / "step_5") == "r"


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGES = {
    "one flipped bit": flip_a_bit, "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""), "garbage": lambda path: path.write_bytes(b"\x00garbage" * 50),
    "removed": lambda path: path.unlink(),
}  # fmt: skip
FILES = ("state.pt", "optimizer.pt", "adapter_model.safetensors", "adapter_config.json", "checkpoint.json")


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(tmp_path: Path) -> None:
    _, newest = saved(tmp_path, 1, 2)
    policy, wrong = tiny_policy(), []
    for name in FILES:
        whole = (newest / name).read_bytes()
        for damage, apply in DAMAGES.items():
            apply(newest / name)
            warnings: list[str] = []
            found = checkpoint.latest(tmp_path, warnings.append)
            try:
                checkpoint.load(newest, optimizer_of(policy))
                error = "none"
            except DataError as refused:
                error = str(refused)
            named = len(warnings) == 1 and str(newest) in warnings[0]
            if found != tmp_path / "step_1" or not named or "step_2 is" not in error:
                wrong.append((name, damage, found, warnings, error))
            (newest / name).write_bytes(whole)
    assert not wrong
    assert checkpoint.latest(tmp_path) == newest


def test_saving_a_step_again_replaces_it_and_loading_restores_it(tmp_path: Path) -> None:
    policy = tiny_policy()
    checkpoint.save(tmp_path, optimizer_of(policy), state(1), config_text="old: 1\n")
    path = checkpoint.save(tmp_path, optimizer_of(policy), state(1), config_text="new: 1\n")
    assert (path / "config.yaml").read_text() == "new: 1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["step_1"]
    expected = torch.rand(3)
    loaded = checkpoint.load(path, optimizer_of(policy))
    checkpoint.restore_random_states(loaded.random_states)
    assert torch.equal(torch.rand(3), expected)
    assert (loaded.step, loaded.sampler, loaded.buffer) == (1, {"position": 3}, {"texts": ["a"]})


def test_a_full_disk_is_reported_with_the_path_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    policy = tiny_policy()
    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="step_4") as caught:
            patch.setattr(policy, "save_adapter", Mock(side_effect=error))
            checkpoint.save(tmp_path, optimizer_of(policy), state(4))
        assert caught.value.filename == str(tmp_path / "step_4")
        assert list(tmp_path.iterdir()) == [], error


@pytest.mark.parametrize("kind", ["rollout", "buffer"])
async def test_a_finished_step_is_saved_if_log_or_buffer_cannot_be_written(tmp_path: Path, kind: str) -> None:
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
    clean, resumed = (bandit_trainer(folder, buffer=ListBuffer()) for folder in (tmp_path / "clean", tmp_path))
    await clean.train(4)
    resumed.resume(tmp_path / "step_3")
    await resumed.train(1)
    assert alike(clean, resumed)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    places = [f"{name}={tmp_path / name}" for name in ("output_dir", "log_dir", "results_dir", "persistence_dir")]
    return load_config(None, places)


def run(config: Config, *steps: int, resume: bool = False, said: Said | None = None) -> Started:
    """A run that wrote these checkpoints, a log and results."""
    with open_folder(config, resume=resume, progress=said or Said()) as folder:
        started = folder.begin("problems", said or Said())
        saved(folder.checkpoints, *steps, run_id=started.id)
        started.log.log(RunEvent(id=started.id))
        folder.results.write_text(json.dumps({"run_id": started.id}))
    return started


def opened(config: Config, *, resume: bool, said: Said | None = None) -> RunFolder:
    with open_folder(config, resume=resume, progress=said or Said()) as folder:
        return folder


def test_what_an_earlier_run_left_is_moved_aside_whole_and_never_resumed(config: Config) -> None:
    old, said = run(config, 20, 60), Said()
    assert old.folder.buffer is not None
    old.folder.buffer.mkdir(parents=True)
    new = run(config, 3, said=said)
    folder = new.folder
    places = (folder.checkpoints, folder.log_file, folder.results)
    assert [path.name for path in old.folder.buffer.parent.iterdir()] == [f"grpo_mixed.{old.id}"]
    aside = {path.name for place in places for path in place.parent.iterdir()}
    assert {f"grpo_mixed.{old.id}", f"grpo_mixed.{old.id}.jsonl", f"grpo_mixed.{old.id}.json"} <= aside
    assert sum(old.id in line for line in said.lines) == 4
    kept = folder.log_file.with_name(f"grpo_mixed.{old.id}.jsonl")
    assert [event["id"] for event in read_events(kept)] == [old.id]
    assert [event["id"] for event in read_events(folder.log_file)] == [new.id]
    resumed = opened(config, resume=True)
    assert resumed.resumed_from == folder.checkpoints / "step_3" == newest_checkpoint(config)
    assert checkpoint.verify(folder.checkpoints / "step_3") == new.id != old.id
    stranger = folder.checkpoints.parent / f"grpo_mixed.{old.id}" / "step_60"
    stranger.rename(folder.checkpoints / "step_60")
    with pytest.raises(DataError, match="step_60 does not belong to the run"):
        opened(config, resume=True)


def test_two_at_once_are_refused_and_a_run_that_fails_early_touches_nothing(config: Config) -> None:
    with pytest.raises(ConfigError, match="nothing to resume"):
        opened(config, resume=True)
    old = run(config, 60)
    before = {path: path.read_bytes() for path in old.folder.log_file.parent.parent.parent.rglob("*") if path.is_file()}
    with pytest.raises(ZeroDivisionError), open_folder(config, resume=False, progress=Said()):
        raise ZeroDivisionError("the endpoint is down")
    assert {path: path.read_bytes() for path in before} == before
    taken = pytest.raises(ConfigError, match=r"run of another process \(process \d+\).*run_name")
    with open_folder(config, resume=False, progress=Said()), taken:
        opened(config, resume=False)
    opened(config, resume=False)  # and the lock is free again
