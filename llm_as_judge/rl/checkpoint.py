"""Checkpoints from which training goes on bit for bit.

``DIR/step_N`` is a PEFT adapter (usable anywhere) plus ``optimizer.pt``, ``state.pt`` (random states,
sampler, buffer, counters) and ``config.yaml``. It is written aside and renamed, so a ``step_N`` that exists
is complete.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from llm_as_judge.errors import DataError

FORMAT = 1
_STEP = re.compile(r"step_(\d+)")


class Adapter(Protocol):
    """What a checkpoint needs of ``rl.policy.Policy``."""

    def save_adapter(self, directory: Path) -> None: ...
    def load_adapter(self, directory: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainingState:
    """All but weights and optimiser. The mappings hold plain values and tensors only."""

    step: int
    random_states: Mapping[str, Any]
    sampler: Mapping[str, Any] = field(default_factory=dict)
    buffer: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)


def save(
    directory: Path,
    policy: Adapter,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    config_text: str = "",
) -> Path:
    """Writes ``directory/step_N`` (replacing an older one) and returns its path."""
    target = directory / f"step_{state.step}"
    aside = directory / f".{target.name}.{os.getpid()}"
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    policy.save_adapter(aside)
    torch.save(optimizer.state_dict(), aside / "optimizer.pt")
    torch.save(
        {
            "format": FORMAT,
            "step": state.step,
            "random_states": dict(state.random_states),
            "sampler": dict(state.sampler),
            "buffer": dict(state.buffer),
            "counters": dict(state.counters),
        },
        aside / "state.pt",
    )
    (aside / "config.yaml").write_text(config_text, encoding="utf-8")
    if target.exists():
        old = directory / f".{target.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        aside.rename(target)
        shutil.rmtree(old)
    else:
        aside.rename(target)
    return target


def load(
    path: Path, policy: Adapter, optimizer: torch.optim.Optimizer, device: torch.device | str = "cpu"
) -> TrainingState:
    """Restores adapter and optimiser and returns the rest; ``restore_random_states`` is the caller's to call
    last.

    Raises ``DataError`` where ``path`` is no checkpoint of this program.
    """
    for name in ("adapter_config.json", "optimizer.pt", "state.pt"):
        if not (path / name).exists():
            raise DataError(f"{path} is no checkpoint: {name} is missing; give a directory named step_N")
    raw = torch.load(path / "state.pt", weights_only=True)
    if raw.get("format") != FORMAT:
        raise DataError(f"{path} has checkpoint format {raw.get('format')}, this program reads format {FORMAT}")
    policy.load_adapter(path)
    optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True, map_location=device))
    return TrainingState(
        step=raw["step"],
        random_states=raw["random_states"],
        sampler=raw["sampler"],
        buffer=raw["buffer"],
        counters=raw["counters"],
    )


def latest(directory: Path) -> Path | None:
    """The checkpoint with the highest step in ``directory``, or None."""
    if not directory.is_dir():
        return None
    found = [(int(m[1]), p) for p in directory.iterdir() if (m := _STEP.fullmatch(p.name)) and p.is_dir()]
    return max(found)[1] if found else None


def step_of(path: Path) -> int:
    """The number in a checkpoint's name; 0 for a folder of another name."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else 0


def random_states() -> dict[str, Any]:
    """States of the Python, NumPy and torch generators, as plain values."""
    numpy_state: Any = np.random.get_state(legacy=False)
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": {
            "bit_generator": numpy_state["bit_generator"],
            "key": [int(k) for k in numpy_state["state"]["key"]],
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: Mapping[str, Any]) -> None:
    """The inverse of ``random_states``; cuda's are left out where the number of devices differs."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    saved = states["numpy"]
    np.random.set_state(
        {
            "bit_generator": saved["bit_generator"],
            "state": {"key": np.array(saved["key"], dtype=np.uint32), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
    torch.set_rng_state(states["torch"].cpu())
    cuda = states.get("cuda", [])
    if torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in cuda])
