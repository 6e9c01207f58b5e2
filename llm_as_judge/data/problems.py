"""The problems of a file that the user names, and a fair choice of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.config.registry import nearest
from llm_as_judge.data.files import TEST_INDEX, check_whole
from llm_as_judge.data.load import load_file
from llm_as_judge.data.quota import Quota
from llm_as_judge.data.settings import field_spellings
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Problem

#: Where ``data process`` puts the test set of each dataset.
TEST_SETS = Path("data/test")


def read_problems(path: Path, limit: int | None = None) -> list[Problem]:
    """Problems of ``path``, its fields spelt as config/dataset.yaml allows.

    Raises ``DataError``, also where the file is of a ``data process`` that broke off.
    """
    check_whole(path)
    return load_file(path, limit, field_spellings())


def each_set(places: Sequence[Path]) -> list[Path]:
    """``places``, with every test set by itself of a folder that ``data process`` wrote."""
    return [
        file
        for place in places
        for file in (sorted(place.glob("*_test.jsonl")) if (place / TEST_INDEX).is_file() else [place])
    ]


def sets_named(places: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """The files of the test sets ``names`` in ``places``, files or folders: ``NAME_test.jsonl``, or ``NAME.jsonl``.

    Raises ``ConfigError`` for names that are none of those there.
    """
    missing = [place for place in places if not place.exists()]
    if missing:
        cure = "make the test sets (llm-as-judge data process), or name their folder with --data"
        raise ConfigError(f"{missing[0]} does not exist; {cure}")
    files = [file for place in places for file in (sorted(place.glob("*.jsonl*")) if place.is_dir() else [place])]
    there = {file.name.partition(".")[0].removesuffix("_test"): file for file in files}
    folders = dict.fromkeys(str(place if place.is_dir() else place.parent) for place in places)
    known = f"there are {', '.join(there) or 'none'} in {', '.join(folders)}"
    if not names:
        raise ConfigError(f"--datasets names no test set; {known}")
    for name in names:
        if name not in there:
            guess = nearest(name, there)
            raise ConfigError(
                f"--datasets {name}: no such test set; {f'did you mean {guess!r}? ' if guess else ''}{known}"
            )
    return [there[name] for name in names]


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


def unseen(some: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """Those of ``some`` that ask what none of ``others`` asks, but for spaces and case."""

    def asked(problem: Problem) -> str:
        return " ".join(f"{problem.question.statement} {problem.question.entry_point or ''}".split()).casefold()

    known = {asked(problem) for problem in others}
    return [problem for problem in some if asked(problem) not in known]
