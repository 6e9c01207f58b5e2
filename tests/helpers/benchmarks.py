"""Where the benchmarks' own files lie on this machine, if anywhere. They are not part of the repository."""

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from llm_as_judge.data.settings import sources_of, splits_there

CHECKOUT = Path(__file__).resolve().parents[2]
#: What ``data process`` mixes by default.
MIXED = ("gsm8k", "math", "squad2", "hotpotqa", "humaneval", "mbpp")
#: Where ``llm-as-judge data download`` puts them, then the folder of samples beside the checkout.
FOLDERS = (CHECKOUT / "data/raw", CHECKOUT.parent / "shared/data")


def benchmark(name: str = ".") -> Path:
    """The file or folder ``name`` (``gsm8k/train.jsonl``) of the first folder that has it; skips the test if none."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return folder / name
    missing(name)


def all_benchmarks(names: Iterable[str]) -> Path:
    """The first folder that has a split of each of the datasets ``names``; skips the test if none has."""
    sources = sources_of(list(names))
    for folder in FOLDERS:
        if all(splits_there(folder, name, source) for name, source in sources.items()):
            return folder
    missing("folder of all benchmarks")


def missing(name: str) -> NoReturn:
    pytest.skip(f"no {name} in {' or '.join(map(str, FOLDERS))}; llm-as-judge data download fetches the benchmarks")
