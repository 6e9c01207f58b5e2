"""A run's files are its own: told apart, locked, moved aside, never mixed, and nothing is touched before the checks."""

import json
from pathlib import Path

import pytest
import torch
from helpers.tiny import tiny_policy

from llm_as_judge.assembly.policy import newest_checkpoint
from llm_as_judge.assembly.progress import Silent
from llm_as_judge.assembly.run_folder import RunFolder, Started, open_folder
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.events import RunEvent
from llm_as_judge.rl import checkpoint
from llm_as_judge.runlog import read_events


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    places = [f"{name}={tmp_path / name}" for name in ("output_dir", "log_dir", "results_dir")]
    return load_config(None, places)


def run(config: Config, *steps: int, resume: bool = False, said: Said | None = None) -> Started:
    """A run that wrote these checkpoints, a log and results."""
    with open_folder(config, resume=resume, progress=said or Said()) as folder:
        started = folder.begin("problems", said or Said())
        policy = tiny_policy()
        optimizer = torch.optim.AdamW(policy.trainable_parameters())
        for step in steps:
            state = checkpoint.TrainingState(step, checkpoint.random_states())
            checkpoint.save(folder.checkpoints, policy, optimizer, state, run_id=started.id)
        started.log.log(RunEvent(id=started.id))
        folder.results.write_text(json.dumps({"run_id": started.id}))
    return started


def opened(config: Config, *, resume: bool, said: Said | None = None) -> RunFolder:
    with open_folder(config, resume=resume, progress=said or Said()) as folder:
        return folder


def test_what_an_earlier_run_left_is_moved_aside_whole_and_never_resumed(config: Config) -> None:
    old, said = run(config, 20, 60), Said()
    new = run(config, 3, said=said)
    folder = new.folder
    places = (folder.checkpoints, folder.log_file, folder.results)
    aside = {path.name for place in places for path in place.parent.iterdir()}
    assert {f"grpo_mixed.{old.id}", f"grpo_mixed.{old.id}.jsonl", f"grpo_mixed.{old.id}.json"} <= aside
    assert sum(old.id in line for line in said.lines) == 3
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


def test_a_run_that_fails_before_it_begins_touches_nothing(config: Config) -> None:
    with pytest.raises(ConfigError, match="nothing to resume"):
        opened(config, resume=True)
    old = run(config, 60)
    before = {path: path.read_bytes() for path in old.folder.log_file.parent.parent.parent.rglob("*") if path.is_file()}
    with pytest.raises(ZeroDivisionError), open_folder(config, resume=False, progress=Said()):
        raise ZeroDivisionError("the endpoint is down")
    assert {path: path.read_bytes() for path in before} == before


def test_two_at_once_are_refused_with_the_cure(config: Config, tmp_path: Path) -> None:
    config = with_buffer(config, tmp_path)
    tree = config.model_dump()
    tree["output"]["run_name"] = "other"
    other = Config.model_validate(tree)
    for second, message in (
        (config, r"run of another process \(process \d+\).*run_name"),
        (other, r"persistence_dir=DIR"),
    ):
        taken = pytest.raises(ConfigError, match=message)
        with open_folder(config, resume=False, progress=Said()), taken:
            opened(second, resume=False)
        opened(second, resume=False)  # and the lock is free again


def kept(config: Config, run_id: str, text: str) -> Path:
    """A file of the buffer as that run left it."""
    folder = config.experience_buffer.persistence_dir
    assert folder is not None
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"id": run_id}))
    file = folder / "math_top_samples.jsonl"
    file.write_text(text)
    return file


def with_buffer(config: Config, tmp_path: Path, **more: object) -> Config:
    places = [f"{name}={getattr(config.output, name)}" for name in ("output_dir", "log_dir", "results_dir")]
    settings = [f"experience_buffer.{name}={value}" for name, value in more.items()]
    return load_config(None, [*places, f"persistence_dir={tmp_path / 'buffer'}", *settings])


def test_a_new_run_moves_the_buffer_of_another_aside_unless_it_reuses_it(config: Config, tmp_path: Path) -> None:
    own, said, earlier = with_buffer(config, tmp_path), Said(), "20260101-000000-abcdef"
    file = kept(own, earlier, "good workflows\n")
    aside = file.with_name(f"math_top_samples.{earlier}.jsonl")
    new = run(own, said=said)
    assert not file.exists() and aside.read_text() == "good workflows\n"
    assert any(str(aside) in line for line in said.lines)
    assert json.loads((file.parent / "run.json").read_text())["id"] == new.id

    reusing, said = with_buffer(config, tmp_path, reuse=True), Said()
    kept(reusing, earlier, "more\n")
    started = run(reusing, 3, said=said)
    assert file.read_text() == "more\n"
    assert any(f"of the earlier run {earlier}" in line for line in said.lines)
    said = Said()
    run(reusing, resume=True, said=said)  # its own
    assert file.read_text() == "more\n" and not said.lines and started.id
    aside.unlink()
    kept(reusing, earlier, "another's\n")
    run(reusing, resume=True)
    assert not file.exists() and aside.read_text() == "another's\n"
