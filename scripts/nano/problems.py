"""Writes the problems of the embedded world that runs train on and are measured on: python scripts/nano/problems.py

``llm_as_judge/embedded/problems/NAME.jsonl.gz``, by domain. The same bytes on every machine.
"""

import gzip
import json
from pathlib import Path

from world.generate import Split, problems

from llm_as_judge.data.forms import to_record
from llm_as_judge.types import DOMAINS, Problem

OUT = Path(__file__).parents[2] / "llm_as_judge/embedded/problems"
#: Split, problems of each domain and seed of each file; ``validation`` may repeat some of ``train``.
FILES: dict[str, tuple[Split, int, int]] = {
    "train": ("train", 400, 0),
    "validation": ("train", 120, 1),
    "heldout": ("heldout", 500, 0),
}


def made(name: str, count: int | None = None) -> list[Problem]:
    """Make the problems of a file, or the first ``count`` of each domain."""
    split, number, seed = FILES[name]
    return [problem for domain in DOMAINS for problem in problems(domain, split, count or number, seed)]


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name in FILES:
        lines = "".join(json.dumps(to_record(problem), ensure_ascii=False) + "\n" for problem in made(name))
        (OUT / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
