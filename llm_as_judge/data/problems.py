"""The problems of a file that the user names, and a fair choice of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.data.files import check_whole
from llm_as_judge.data.quota import Quota
from llm_as_judge.data.settings import field_spellings
from llm_as_judge.datasets.load import load_file
from llm_as_judge.types import Problem


def read_problems(path: Path, limit: int | None = None) -> list[Problem]:
    """Problems of ``path``, its fields spelt as config/dataset.yaml allows.

    Raises ``DataError``, also where the file is of a ``data process`` that broke off.
    """
    check_whole(path)
    return load_file(path, limit, field_spellings())


def spread(problems: Sequence[Problem], n: int) -> list[Problem]:
    """``n`` of the problems, in their order: each dataset and domain keeps its share, whatever the file is sorted by.

    Within a share their ids decide, so that every run makes the same choice, and a longer file changes little of it.
    """
    if len(problems) <= n:
        return list(problems)
    kinds = [(p.question.dataset, p.question.domain) for p in problems]
    quota = Counter(Quota(Counter(kinds)).take(n))

    def drawn(index: int) -> bytes:
        question = problems[index].question
        return hashlib.sha256(f"{question.id}\n{question.statement}".encode("utf-8", "surrogatepass")).digest()

    chosen: list[int] = []
    for kind, count in quota.items():
        own = (index for index in range(len(problems)) if kinds[index] == kind)
        chosen += sorted(own, key=drawn)[:count]
    return [problems[index] for index in sorted(chosen)]


def overlap(some: Sequence[Problem], others: Sequence[Problem]) -> int:
    """How many of ``some`` ask what one of ``others`` asks, but for spaces and case."""

    def asked(problem: Problem) -> str:
        return " ".join(f"{problem.question.statement} {problem.question.entry_point or ''}".split()).casefold()

    known = {asked(problem) for problem in others}
    return sum(asked(problem) in known for problem in some)
