"""Checkpoints from which training continues bit for bit.

``DIR/step_N`` is a PEFT adapter (usable anywhere) plus ``optimizer.pt``, ``state.pt`` (random states, sampler, buffer,
counters), ``config.yaml`` and ``checkpoint.json``: the id of the run and a checksum of every file. A checkpoint is
written under another name and renamed, so an existing ``step_N`` was complete; ``verify`` detects later damage.
Whether the settings still fit is decided in ``assembly.run_folder`` before anything is loaded.
"""

import errno
import json
import logging
import os
import pickle
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from llm_as_judge.errors import DataError
from llm_as_judge.files import naming, read_json, sha256_of
from llm_as_judge.rl.update import Optimizer

logger = logging.getLogger(__name__)

FORMAT = 2
MANIFEST = "checkpoint.json"
#: Scores of the validation after a step, beside its checkpoint's files.
VALIDATION = "validation.json"
_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything except weights and optimiser. The mappings hold plain values and tensors only."""

    step: int
    random_states: Mapping[str, Any]
    sampler: Mapping[str, Any] = field(default_factory=dict)
    buffer: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    pending: Sequence[Mapping[str, Any]] = ()  # batches that are sampled but not trained on yet


def save(
    directory: Path, optimizer: Optimizer, state: TrainingState, *, config_text: str = "", run_id: str = ""
) -> Path:
    """Write ``directory/step_N``, replacing an older one, and return its path.

    Raises ``OSError`` with the path; earlier checkpoints remain.
    """
    target = directory / f"step_{state.step}"
    aside = directory / f".{target.name}.{os.getpid()}"
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        with naming(target):
            optimizer.save(aside)
            torch.save(asdict(state), aside / "state.pt")
            (aside / "config.yaml").write_text(config_text, encoding="utf-8")
            sums = {path.name: sha256_of(path) for path in sorted(aside.iterdir())}
            manifest = {"format": FORMAT, "run": run_id, "step": state.step, "sha256": sums}
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    except BaseException as error:
        full = shutil.disk_usage(aside).free < 1 << 20
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, (RuntimeError, SafetensorError)):  # of torch and safetensors, which do not name the cause
            number = errno.ENOSPC if full else errno.EIO
            raise OSError(number, os.strerror(number), str(target)) from error
        raise
    old = directory / f".{target.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return target


def verify(path: Path) -> str:
    """Verify ``path``; returns the id of the run that wrote it. Raises ``DataError`` for a damaged checkpoint."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version, sums, run_id = manifest["format"], dict(manifest["sha256"]), str(manifest["run"])
    except FileNotFoundError:
        raise DataError(f"{path} is no checkpoint: {MANIFEST} is missing; give a directory named step_N") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {MANIFEST} cannot be read ({error}); use an earlier checkpoint") from error
    if version != FORMAT:
        raise DataError(f"{path} has checkpoint format {version}, this program reads format {FORMAT}")
    for name, expected in sums.items():
        file = path / name
        if not file.is_file() or sha256_of(file) != expected:
            what = "was changed" if file.is_file() else "is missing"
            raise DataError(f"{path} is damaged: {name} {what}; use an earlier checkpoint")
    return run_id


def load(path: Path, optimizer: Optimizer) -> TrainingState:
    """Restore weights and optimiser and return the rest; the caller restores the random states last.

    Raises ``DataError`` if ``path`` is not a complete checkpoint of this program and this policy.
    """
    verify(path)
    try:
        raw = torch.load(path / "state.pt", weights_only=True)
        state = TrainingState(**{name: raw[name] for name in TrainingState.__dataclass_fields__})
        optimizer.load(path)
    except (OSError, pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not fit this run: {error}; use another checkpoint or start anew") from error
    return state


def latest(directory: Path, warn: Callable[[str], None] = logger.warning) -> Path | None:
    """Find the undamaged checkpoint with the highest step in ``directory``, or None; ``warn`` reports damaged ones."""
    for path in _newest_first(directory):
        try:
            verify(path)
        except DataError as error:
            warn(str(error))
        else:
            return path
    return None


def prune(directory: Path, keep: int) -> None:
    """Remove all checkpoints but the ``keep`` newest and, of the validated ones, the newest of the best."""
    newest = _newest_first(directory)
    scores = {path: score for path in newest if (score := read_json(path / VALIDATION).get("overall")) is not None}
    best = max(scores, key=lambda path: scores[path], default=None)
    for path in newest[keep:]:
        if path != best:
            shutil.rmtree(path)


def _newest_first(directory: Path) -> list[Path]:
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted((path for path in found if step_of(path) and path.is_dir()), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """Read the step number in a checkpoint's name; 0 for other names."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else 0


def random_states() -> dict[str, Any]:
    """Return the states of torch's random generators; nothing else in a run draws from a global one."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda}


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Restore what ``random_states`` returned; those of cuda are skipped if the number of devices differs."""
    torch.set_rng_state(states["torch"].cpu())
    cuda = states.get("cuda", [])
    if cuda and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in cuda])
