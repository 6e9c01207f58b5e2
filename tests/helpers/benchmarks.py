"""Where the benchmarks' own files lie on this machine, if anywhere. They are not part of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
#: Where ``llm-as-judge data download`` puts them, then the folder of samples beside the checkout.
FOLDERS = (CHECKOUT / "data/raw", CHECKOUT.parent / "shared/data")


def benchmark(name: str = ".") -> Path:
    """The file or folder ``name`` (``gsm8k/train.jsonl``) of the first folder that has it; skips the test if none."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return folder / name
    pytest.skip(f"no {name} in {' or '.join(map(str, FOLDERS))}; llm-as-judge data download fetches the benchmarks")
