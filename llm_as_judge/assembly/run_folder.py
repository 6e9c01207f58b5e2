"""Files of a training run: checkpoints, log, results and stored buffer, locked against a second run of the same name.

A run has an identity: its start time and a digest of configuration and problems. Checkpoints, log and results carry it.
Files of an earlier run of the same name are moved aside before a new one begins.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import adapter_digest, checkpoint_folder, start_of
from llm_as_judge.assembly.progress import Progress
from llm_as_judge.config.fields import names_input
from llm_as_judge.config.identity import IRRELEVANT, decisive
from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import LEAVES, SECTIONS, Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import locked, read_json, write_json
from llm_as_judge.rl import checkpoint
from llm_as_judge.runlog import EventLog

_IDENTITY = "run.json"
#: Sections that decide nothing that a run learns; of the others, the schema marks the free settings.
_NOT_LEARNED = (*IRRELEVANT, "warmup", "engine", "evaluation")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Places of one run; nothing is written before ``begin``."""

    config: Config
    config_text: str
    checkpoints: Path
    log_file: Path
    results: Path
    buffer: Path | None  # None: not stored
    resumed_from: Path | None
    previous: str  # id of the run whose files are there, or "unknown"; '' without files

    @property
    def curve(self) -> Path:
        return self.results.with_suffix(".png")

    def begin(self, data_digest: str, progress: Progress) -> "Started":
        """Continue a resumed run, or move an earlier run's files aside and begin a new one.

        ``data_digest`` identifies the training problems.
        """
        if self.resumed_from is not None:
            return Started(self, self.previous, EventLog(self.log_file))
        if self.previous:
            for place in (self.checkpoints, self.log_file, self.results, self.curve, self.buffer):
                if place and place.exists():
                    aside = place.with_name(f"{place.stem}.{self.previous}{place.suffix}")
                    while aside.exists():
                        aside = aside.with_name(f"{aside.name}~")
                    place.rename(aside)
                    progress.say(f"{place} of the earlier run {self.previous} is now {aside}")
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        began = time.time()
        digest = hashlib.sha256(f"{self.config_text}\n{data_digest}\n{began}".encode()).hexdigest()[:6]
        run_id = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began)) + f"-{digest}"
        about = {"id": run_id, "began": began, "data": data_digest, "settings": _deciding(self.config)}
        write_json(self.checkpoints / _IDENTITY, about)
        return Started(self, run_id, EventLog(self.log_file))


@dataclass(frozen=True, slots=True)
class Started:
    folder: RunFolder
    id: str
    log: EventLog


@contextmanager
def open_folder(config: Config, *, resume: bool, progress: Progress) -> Iterator[RunFolder]:
    """Lock the places of the configured run; with ``resume``, with its last whole checkpoint.

    Raises ``ConfigError`` if there is nothing to resume, settings have changed or another run is in progress,
    ``OSError`` if a folder is not writable.
    """
    output, checkpoints = config.output, checkpoint_folder(config)
    key = config.base_model.key
    log_file = output.log_dir / key / f"{output.run_name}.jsonl"
    results = output.results_dir / "training" / key / f"{output.run_name}.json"
    buffer = stored / key / output.run_name if (stored := config.experience_buffer.persistence_dir) else None
    places = [place for place in (checkpoints, log_file, results, buffer) if place]
    for folder in (place.parent for place in places):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), str(folder))

    cure = "wait for it, or give this run another name: --set output.run_name=NAME"
    with locked(checkpoints, "in use by a training run of", cure):
        newest = checkpoint.latest(checkpoints, progress.say) if resume else None
        about = read_json(checkpoints / _IDENTITY)
        previous = str(about.get("id") or "")
        if newest is not None:
            if previous not in ("", checkpoint.verify(newest)):
                raise DataError(f"{newest} does not belong to the run {previous} of its folder; remove it")
            if not (was := about.get("settings")):
                cure = f"start a new run from its adapter: --fresh --set model.adapter={newest}"
                raise ConfigError(f"{checkpoints / _IDENTITY} has no settings to compare (an earlier version?); {cure}")
            if changed := [*_changes(was, _deciding(config))]:
                raise ConfigError(
                    f"--resume with settings that differ from {newest}: {'; '.join(changed)}. Set them back to "
                    "continue, or start a new run with --fresh"
                )
        elif resume:
            raise ConfigError(f"nothing to resume in {checkpoints}; start anew without --resume")
        if not previous and any(place.exists() for place in places):
            previous = "unknown"
        yield RunFolder(config, to_yaml(config), checkpoints, log_file, results, buffer, newest, previous)


def _deciding(config: Config) -> dict[str, Any]:
    """Return the settings that decide what is learned, files by their contents (those of data: as problems)."""
    kept = decisive(config, [section for section in SECTIONS if section not in _NOT_LEARNED])
    whole = {"executors": kept.pop("executors", {}), "model.adapter": adapter_digest(start_of(config).model.adapter)}
    found = {f"{section}.{name}": value for section, own in kept.items() for name, value in own.items()} | whole
    free = {name for name, field in LEAVES.items() if "free" in field.metadata} | {"model.model_name"}  # the folder's
    free |= {name for name in found if name.startswith("data.") and names_input(LEAVES[name])}
    free |= {name for name in found if ".price_" in name and not config.executors}  # tokens are weighed among several
    return {name: value for name, value in found.items() if name not in free}


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, value in now.items():
        if (before := was.get(name, value)) != value:
            named = name in LEAVES and names_input(LEAVES[name])
            yield f"{name} or its files" if named else f"{name} was {before}, is {value}"
