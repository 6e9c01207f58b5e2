"""``llm-as-judge data inspect``: counts, lengths and examples of a processed folder or a file of problems.

Files are streamed. Lengths are in characters, of the statement that the policy reads (context and question).
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.files import check_whole
from llm_as_judge.data.problems import parse_record
from llm_as_judge.data.reading import Faults, files_in, parsed
from llm_as_judge.errors import DataError
from llm_as_judge.files import sha256_of
from llm_as_judge.types import Domain, Problem

_SHOWN = 300


@dataclass(slots=True)
class _Tally:
    copies: Counter[str] = field(default_factory=Counter)  # of each id
    lengths: array[int] = field(default_factory=lambda: array("l"))
    unanswerable: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)

    def add(self, problem: Problem, examples: int) -> None:
        question, reference = problem.question, problem.reference
        if question.id not in self.copies and len(self.examples) < examples:
            answer = reference.tests or " | ".join(reference.answers) or "unanswerable"
            self.examples.append({"id": question.id, "problem": _cut(question.statement), "answer": _cut(answer)})
        self.copies[question.id] += 1
        self.lengths.append(len(question.statement))
        self.unanswerable += reference.unanswerable

    def as_json(self, domain: Domain) -> dict[str, Any]:
        lengths, lines, unique = sorted(self.lengths), len(self.lengths), len(self.copies)
        return {
            "domain": domain,
            "lines": lines,
            "unique": unique,
            "repetition": round(lines / unique, 2),
            "unanswerable": self.unanswerable,
            "length": {"median": lengths[lines // 2], "p95": lengths[int(lines * 0.95)], "max": lengths[-1]},
            "examples": self.examples,
        }


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} [...] {text[-_SHOWN // 2 :]}"


def inspect_file(path: Path, examples: int = 1, fields: Mapping[str, Sequence[str]] = custom.FIELDS) -> dict[str, Any]:
    """The datasets in a file or folder, by name; one with several domains has an entry for each.

    Raises ``DataError`` with every bad record.
    """
    tallies: dict[tuple[str, Domain], _Tally] = {}
    faults = Faults()
    for file in files_in(path):
        for _, problem in parsed(file, partial(parse_record, fields=fields), faults):
            tallies.setdefault((problem.question.dataset, problem.question.domain), _Tally()).add(problem, examples)
    if faults.count:
        raise DataError(str(faults))
    if not tallies:
        raise DataError(f"{path}: no problems in it")
    domains = Counter(name for name, _ in tallies)
    return {
        f"{name}, {domain}" if domains[name] > 1 else name: tallies[name, domain].as_json(domain)
        for name, domain in sorted(tallies)
    }


def inspect_folder(out: Path, examples: int = 1) -> dict[str, Any]:
    """The mixes of a processed folder, by side, and the notes of ``info.json``.

    Raises ``DataError`` if ``info.json`` is missing, or a file differs from the one it lists.
    """
    path = out / "mixed/info.json"
    check_whole(path)
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        files = {name: facts["sha256"] for name, facts in info["files"].items()}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; run llm-as-judge data process --out {out}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; run llm-as-judge data process again") from error
    for name, expected in files.items():
        if not (out / name).is_file() or sha256_of(out / name) != expected:
            raise DataError(f"{out / name}: is not the file that {path} lists; run llm-as-judge data process again")
    mixes = {side: out / f"mixed/{side}_mixed.jsonl" for side in ("train", "val", "test")}
    sides = {side: inspect_file(mix, examples) for side, mix in mixes.items() if f"mixed/{mix.name}" in files}
    return {"sides": sides, "notes": info.get("notes", []), "contamination": info.get("contamination", {})}
