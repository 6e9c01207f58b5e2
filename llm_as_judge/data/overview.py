"""``llm-as-judge data inspect``: counts, lengths and examples of a processed folder or a file of problems.

Lengths are in characters, of the statement that the policy reads (context and question).
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_as_judge.config.data import DataConfig
from llm_as_judge.data.files import check_whole
from llm_as_judge.data.forms import NO_MAPPING
from llm_as_judge.data.problems import read_problems
from llm_as_judge.data.process import INFO, SIDES
from llm_as_judge.errors import DataError
from llm_as_judge.files import cut, read_json, sha256_of
from llm_as_judge.types import Domain, Problem

_SHOWN = 300


def inspect_file(path: Path, examples: int = 3, data: DataConfig = NO_MAPPING) -> dict[str, Any]:
    """Describe the datasets in a file or folder, by name; one with several domains has an entry for each.

    Raises ``DataError`` with every bad record.
    """
    sets: defaultdict[tuple[str, Domain], list[Problem]] = defaultdict(list)
    for problem in read_problems(path, data):
        sets[problem.question.dataset, problem.question.domain].append(problem)
    datasets = [dataset for dataset, _ in sets]
    return {
        f"{dataset}, {domain}" if datasets.count(dataset) > 1 else dataset: _facts(domain, own, examples)
        for (dataset, domain), own in sorted(sets.items())
    }


def inspect_folder(out: Path, examples: int = 3) -> dict[str, Any]:
    """Describe the mixes of a processed folder, by side, with the notes of ``info.json``.

    Raises ``DataError`` if ``info.json`` is missing, or a file differs from the one it lists.
    """
    path, cure = out / INFO, f"run llm-as-judge data process --out {out}"
    check_whole(path)
    info = read_json(path)
    if not (files := info.get("files")):
        raise DataError(f"{path}: no such file, or a damaged one; {cure}")
    for name, facts in files.items():
        if not (out / name).is_file() or sha256_of(out / name) != facts["sha256"]:
            raise DataError(f"{out / name}: is not the file that {path} lists; {cure}")
    mixes = {side: f"mixed/{side}_mixed.jsonl" for side in SIDES}
    sides = {side: inspect_file(out / mix, examples) for side, mix in mixes.items() if mix in files}
    return {"sides": sides, "notes": info["notes"]}


def _facts(domain: Domain, problems: Sequence[Problem], examples: int) -> dict[str, Any]:
    unique = {problem.question.id: problem for problem in reversed(problems)}
    lengths, lines = sorted(len(problem.question.statement) for problem in problems), len(problems)
    return {
        "domain": domain,
        "lines": lines,
        "unique": len(unique),
        "repetition": round(lines / len(unique), 2),
        "length": {"median": lengths[lines // 2], "p95": lengths[int(lines * 0.95)], "max": lengths[-1]},
        "examples": [_example(problem) for problem in [*reversed(unique.values())][:examples]],
    }


def _example(problem: Problem) -> dict[str, str]:
    question, reference = problem.question, problem.reference
    answer = reference.tests or " | ".join(reference.answers) or ("unanswerable" if reference.unanswerable else "none")
    return {"id": question.id, "problem": cut(question.statement, _SHOWN), "answer": cut(answer, _SHOWN)}
