"""Where a training run keeps what it makes, whose it is, and that nobody else writes there.

A run has an identity: when it began and a digest of its configuration and problems. Every checkpoint, its log and its
results bear it. What an earlier run of the same name left is moved aside before a new one begins, never mixed with it;
so are the workflows in the buffer's folder, unless ``experience_buffer.reuse`` asks for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import checkpoint_folder
from llm_as_judge.assembly.progress import Progress
from llm_as_judge.config.identity import identity
from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.experience.buffer import sample_files
from llm_as_judge.files import locked, make_folder, write_json
from llm_as_judge.rl import checkpoint
from llm_as_judge.runlog import EventLog

_IDENTITY = "run.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The places of one run; nothing is touched before ``begin``."""

    config: Config
    config_text: str
    checkpoints: Path
    log_file: Path
    results: Path
    resumed_from: Path | None
    previous: str  # id of the run whose files are there, '' for none

    @property
    def curve(self) -> Path:
        return self.results.with_suffix(".png")

    @property
    def before(self) -> Path:
        """The held-out evaluation of the policy as it was before the first step."""
        return self.checkpoints / "before.json"

    def begin(self, data_digest: str, progress: Progress) -> Started:
        """Makes the run's files: a new run's, the earlier one's moved aside; or goes on with those there.

        ``data_digest`` tells the training problems.
        """
        if self.resumed_from is not None:
            self._claim_buffer(self.previous, progress)
            return Started(self, self.previous, EventLog(self.log_file))
        if self.previous:
            for place in (self.checkpoints, self.log_file, self.results, self.curve):
                if place.exists():
                    _move_aside(place, self.previous, progress)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        began = time.time()
        digest = hashlib.sha256(f"{self.config_text}\n{data_digest}\n{began}".encode()).hexdigest()[:6]
        run_id = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began)) + f"-{digest}"
        told = {"id": run_id, "began": began, "config": identity(self.config)[:16], "data": data_digest}
        write_json(self.checkpoints / _IDENTITY, told)
        self._claim_buffer(run_id, progress)
        return Started(self, run_id, EventLog(self.log_file))

    def _claim_buffer(self, run_id: str, progress: Progress) -> None:
        """Makes the buffer's folder this run's. A resumed run has its own workflows in the checkpoint."""
        config = self.config.experience_buffer
        folder = config.persistence_dir if config.enabled else None
        if folder is None:
            return
        files = [file for file in sample_files(folder).values() if file.exists() and file.stat().st_size]
        owner = str(_identity(folder).get("id") or "")
        if owner == run_id:
            return
        if files:
            owner = owner or _age(*files)
            if config.reuse and self.resumed_from is None:
                progress.say(f"begins with the workflows in {folder} of the earlier run {owner}")
            else:
                for file in files:
                    _move_aside(file, owner, progress)
        write_json(folder / _IDENTITY, {"id": run_id})


@dataclass(frozen=True, slots=True)
class Started:
    """A run that has begun."""

    folder: RunFolder
    id: str
    log: EventLog


@contextmanager
def open_folder(config: Config, *, resume: bool, progress: Progress) -> Iterator[RunFolder]:
    """The run's places, locked against a second run of that name. With ``resume``, the last whole checkpoint.

    Raises ``ConfigError`` where there is nothing to resume or another run is under way, ``OSError`` where a folder
    cannot be written.
    """
    output, checkpoints = config.output, checkpoint_folder(config)
    key = config.base_model.key
    log_file = output.log_dir / key / f"{output.run_name}.jsonl"
    results = output.results_dir / "training" / key / f"{output.run_name}.json"
    for folder in (checkpoints.parent, log_file.parent, results.parent):
        make_folder(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), str(folder))
    buffer = config.experience_buffer
    with ExitStack() as locks:
        own_name = "give this run a name of its own: --set output.run_name=NAME"
        locks.enter_context(locked(checkpoints.with_name(f".{checkpoints.name}.lock"), _taken(checkpoints, own_name)))
        if buffer.enabled and (kept := buffer.persistence_dir) is not None:
            own_folder = "give this run a folder of its own: --set experience_buffer.persistence_dir=DIR"
            locks.enter_context(locked(kept / ".lock", _taken(kept, own_folder)))
        newest = checkpoint.latest(checkpoints, progress.say) if resume else None
        if resume and newest is None:
            raise ConfigError(f"nothing to resume in {checkpoints}; start anew without --resume")
        there = checkpoints.exists() or log_file.exists() or results.exists()
        previous = str(_identity(checkpoints).get("id") or "")
        written_by = checkpoint.verify(newest) if newest else ""
        if newest is not None and previous and written_by != previous:
            raise DataError(f"{newest} is not of the run {previous} in whose folder it lies; take it out or start anew")
        if there and not previous:
            previous = written_by or _age(checkpoints, log_file, results)
        yield RunFolder(config, to_yaml(config), checkpoints, log_file, results, newest, previous)


def _identity(checkpoints: Path) -> dict[str, Any]:
    """What ``run.json`` says; empty where it is not there or torn."""
    try:
        found = json.loads((checkpoints / _IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _age(*places: Path) -> str:
    """A name for the run of files without an identity: when they were last written."""
    newest = max(place.stat().st_mtime for place in places if place.exists())
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(newest))


def _move_aside(place: Path, owner: str, progress: Progress) -> None:
    aside = _free(place.with_name(f"{place.stem}.{owner}{place.suffix}"))
    place.rename(aside)
    progress.say(f"{place} of the earlier run {owner} is now {aside}")


def _free(path: Path) -> Path:
    return path if not path.exists() else _free(path.with_name(f"{path.name}~"))


def _taken(what: Path, cure: str) -> Callable[[str], ConfigError]:
    """What a second run is told of a place that a first one holds."""
    return lambda holder: ConfigError(
        f"{what} is in use by a training run of another process ({holder}); wait for it, or {cure}"
    )
