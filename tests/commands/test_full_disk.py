"""A disk that is really full: what was there stays, the message names the file, and with room the run goes on.

Each place that a run writes to is a small file system of its own, filled to the brim. Mounting one needs privileges;
where there are none, the tests of ``files``, ``events`` and the trainer stand for these.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_as_judge.commands.app import main
from llm_as_judge.runlog import read_events

ROOT = Path(__file__).parents[2]
PLACES = ("checkpoints", "logs", "results", "buffer")
MB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(address: str, capfd: pytest.CaptureFixture[str]) -> Command:
    def run(name: str, places: dict[str, Path], *words: str) -> tuple[int, str]:
        settings = {
            "executor.base_url": address, "judge.base_url": address, "judge.mode": "rules", "rollout_batch_size": 3,
            "num_return_sequences_in_group": 2, "eval_problems": 3, "baselines": "false", "plan_matrix": "false",
            "reward_threshold": -100, "save_every": 1, "output_dir": places["checkpoints"], "log_dir": places["logs"],
            "results_dir": places["results"], "persistence_dir": places["buffer"],
            "guidance": ROOT / "config/guidance.yaml",
        }  # fmt: skip
        told = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        status = main([name, "--config", str(ROOT / "config/embedded.yaml"), *told, *words])
        return status, capfd.readouterr().err

    return run


def fill(disk: Path, left: int = 0) -> None:
    with open(disk / "filler", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, file.tell() - left))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "filler"}


@pytest.fixture(scope="module")
def finished(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of two steps leaves."""
    return tmp_path_factory.mktemp("finished")


@pytest.mark.parametrize(
    ("place", "left", "file"),
    [
        ("checkpoints", 100_000, "checkpoints/nano/grpo_mixed/step_3"),  # within the adapter
        ("checkpoints", 300_000, "checkpoints/nano/grpo_mixed/step_3"),  # within the optimiser
        ("logs", 0, "logs/nano/grpo_mixed.jsonl"),
        ("logs", 8192, "logs/nano/grpo_mixed.jsonl"),
        ("results", 0, "results/training/nano/grpo_mixed.json"),
        ("buffer", 0, "_top_samples.jsonl"),
    ],
)
def test_training_stops_whole_and_goes_on_when_there_is_room(
    tmp_path: Path, finished: Path, disk: Path, command: Command, place: str, left: int, file: str
) -> None:
    if not any(finished.iterdir()):
        assert command("train", {name: finished / name for name in PLACES}, "--max-steps", "2")[0] == 0
    places = {name: (disk if name == place else tmp_path) / name for name in PLACES}
    for name, folder in places.items():
        shutil.copytree(finished / name, folder)
    before = {name: contents(folder) for name, folder in places.items()}
    fill(disk, left)

    status, told = command("train", places, "--resume", "--max-steps", "3")
    assert status == 2 and "Traceback" not in told, told
    (line,) = (line for line in told.splitlines() if line.startswith("error: "))
    assert file in line and "no space left on device" in line
    assert "go on from it with --resume" in told
    for path, old in before["checkpoints"].items() | before["results"].items():
        assert path.read_bytes() == old
    for path, old in before["logs"].items():
        assert path.read_bytes().startswith(old)
    assert not [path for folder in places.values() for path in folder.rglob(".*.*") if path.suffix != ".lock"]

    (disk / "filler").unlink()
    status, told = command("train", places, "--resume", "--max-steps", "3")
    assert status == 0, told
    events = list(read_events(places["logs"] / "nano/grpo_mixed.jsonl"))
    steps = {event["step"] for event in events if event["kind"] == "step"}
    results = json.loads((places["results"] / "training/nano/grpo_mixed.json").read_text())
    assert (results["steps"], {1, 2} <= steps) == (3, True)
    assert (places["checkpoints"] / "nano/grpo_mixed/step_3/checkpoint.json").is_file()
    kept = [json.loads(line) for path in places["buffer"].glob("*_top_samples.jsonl") for line in path.open()]
    assert {entry["step"] for entry in kept} == {1, 2, 3}


def test_evaluation_stops_whole_and_goes_on_when_there_is_room(tmp_path: Path, disk: Path, command: Command) -> None:
    places = {name: (disk if name == "results" else tmp_path) / name for name in PLACES}
    evaluated = ("evaluate", places, "--untrained")
    assert command(*evaluated)[0] == 0
    before = contents(places["results"])
    fill(disk)
    other = ("--limit", "2")
    status, told = command(*evaluated, *other)
    assert status == 2 and "no space left on device" in told and "evaluation/nano_heldout_" in told, told
    assert contents(places["results"]).items() >= before.items()
    (disk / "filler").unlink()
    fill(disk, 4096)  # one record or two
    assert command(*evaluated, *other)[0] == 2
    (disk / "filler").unlink()
    status, told = command(*evaluated, *other, "--resume")
    assert status == 0, told
    rows = json.loads((places["results"] / "evaluation/nano_results.json").read_text())["datasets"]
    assert [row["metrics"]["problems"] for row in rows] == [2]
