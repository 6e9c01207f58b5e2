"""A disk that is really full: existing files stay whole, the message names the file, and with space the run continues.

Each place that a run writes to is a small file system of its own, filled completely. Mounting one needs privileges;
without them these tests are skipped.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import FinishedRun, as_options

from llm_as_judge.runlog import read_events

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, left: int = 0) -> None:
    with open(disk / "filler", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, file.tell() - left))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "filler"}


@pytest.mark.parametrize(
    ("place", "left", "file"),
    [
        ("checkpoints", 300_000, "checkpoints/nano/grpo_mixed/step_3"),  # within the optimiser
        ("logs", 8192, "logs/nano/grpo_mixed.jsonl"),
        ("buffer", 0, "_top_samples.jsonl"),
    ],
)
def test_training_stops_whole_and_continues_with_space(
    tmp_path: Path, finished_run: FinishedRun, disk: Path, place: str, left: int, file: str, cli: CommandLine
) -> None:
    run = finished_run.copy(tmp_path / "run")
    setting = {"checkpoints": "output_dir", "logs": "log_dir", "buffer": "persistence_dir"}[place]
    shutil.copytree(run.folder / place, disk / place)
    places = {name: run.folder / name for name in ("checkpoints", "logs", "results", "buffer")} | {place: disk / place}
    settings = [f"{setting}={disk / place}", "baselines=false", "plan_matrix=false"]
    command = ["train", *run.options, *as_options(settings), "--max-steps", "3", "--resume"]
    before = {name: contents(folder) for name, folder in places.items()}
    fill(disk, left)

    error = cli.refused(*command)
    (line,) = (line for line in error.splitlines() if line.startswith("error: "))
    assert file in line and "no space left on device" in line and "continue with --resume" in error
    for path, old in before["checkpoints"].items() | before["results"].items():
        assert path.read_bytes() == old
    for path, old in before["logs"].items():
        assert path.read_bytes().startswith(old)
    assert not [path for folder in places.values() for path in folder.rglob(".*.*") if path.suffix != ".lock"]

    (disk / "filler").unlink()
    cli(*command)
    log = read_events(places["logs"] / "nano/grpo_mixed.jsonl")
    results = json.loads((places["results"] / "training/nano/grpo_mixed.json").read_text())
    assert results["steps"] == 3 and {1, 2} <= {event["step"] for event in log if event["kind"] == "step"}
    assert (places["checkpoints"] / "nano/grpo_mixed/step_3/checkpoint.json").is_file()
    kept = [json.loads(line) for path in places["buffer"].glob("*_top_samples.jsonl") for line in path.open()]
    assert {entry["step"] for entry in kept} == {1, 2, 3}
