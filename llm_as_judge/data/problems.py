"""Problems from the user's files: loading, choosing a representative part, finding test sets.

A file may hold records of any benchmark, of the project's own format or of another (``forms``). If records cannot
be read, loading fails with file, line and reason of each; a smaller training set is never used silently.
"""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.registry import did_you_mean
from llm_as_judge.data.dataset import OTHER
from llm_as_judge.data.files import check_whole
from llm_as_judge.data.forms import NO_MAPPING, Forms
from llm_as_judge.data.reading import Faults, files_in, parsed
from llm_as_judge.data.record import Record
from llm_as_judge.data.sampler import Quota
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import Problem

logger = logging.getLogger(__name__)

#: File names that say which part of a data set it is, and not which one.
_SPLITS = ("train", "test", "dev", "val", "valid", "validation")
#: Folder of the test sets that ``data process`` writes.
TEST_SETS = Path("data/test")


def read_problems(path: Path, data: DataConfig = NO_MAPPING) -> list[Problem]:
    """Read all problems of a file or folder, each with the name of its benchmark; ``data`` has fields and domains.

    Raises ``DataError`` that names every bad record found, also if ``path`` is part of an interrupted ``data process``.
    """
    check_whole(path)
    variants: dict[str, set[str]] = {}

    def parse(forms: Forms, record: Record) -> Problem:
        problem, dataset, record = forms(record)
        if not dataset:
            return problem
        variant = dataset.variant(record)
        variants.setdefault(problem.question.dataset, set()).add(variant)
        return replace(problem, benchmark=variant)

    problems: list[Problem] = []
    faults = Faults()
    for file in files_in(path):
        of_file = partial(parse, Forms(file, data))
        problems += (replace(problem, place=place) for place, problem in parsed(file, of_file, faults))
    if faults.count:
        raise DataError(str(faults))
    if not problems:
        raise DataError(faults.untested or f"{path}: no problems in it")
    # one record with what only the benchmark's own have shows that the file is the benchmark's
    names = {name: "" if "" in found else file_name(path, name) for name, found in variants.items()}
    return [replace(p, benchmark=names[p.question.dataset]) if p.benchmark == OTHER else p for p in problems]


def file_name(path: Path, dataset: str = "") -> str:
    """Name a data file in results, with its folder if it is only a split's; "" if it is that of ``dataset``."""
    own = path.name.partition(".")[0]
    if own in _SPLITS:
        own = f"{path.resolve().parent.name}_{own}"
    return "" if re.sub(rf"_(?:{'|'.join(_SPLITS)})$", "", own) == dataset else own


def measured_problems(path: Path, limit: int | None = None, data: DataConfig = NO_MAPPING) -> list[Problem]:
    """Read the distinct problems of a file or folder to measure on, or at most ``limit`` of them, spread over it.

    Copies of a problem are no further evidence: they are left out with a warning. They still count in the shares of
    datasets and domains, which a mix keeps by repeating the problems of a small dataset.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit must be >= 1, got {limit}")
    problems = read_problems(path, data)
    found = list({(asked(problem), problem.reference): problem for problem in reversed(problems)}.values())[::-1]
    if len(found) < len(problems):
        copies = len(problems) - len(found)
        logger.warning(
            f"{path}: {copies} of {len(problems)} problems are copies of others and are left out; results and "
            f"intervals are over the {len(found)} distinct ones"
        )
    return spread(found, limit, problems) if limit else found


def each_set(places: Sequence[Path]) -> list[Path]:
    """Replace each folder of test sets (``NAME_test.jsonl``) in ``places`` by these files."""
    return [file for place in places for file in sorted(place.glob("*_test.jsonl")) or [place]]


def sets_named(places: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Find the files of the test sets ``names`` in ``places`` (files, folders): ``NAME_test.jsonl`` or ``NAME.jsonl``.

    Raises ``ConfigError`` for a name without a file.
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
            raise ConfigError(f"--datasets {name}: no such test set; {did_you_mean(name, there)}{known}")
    return [there[name] for name in names]


def spread(problems: Sequence[Problem], n: int, mix: Sequence[Problem] = ()) -> list[Problem]:
    """Choose ``n`` of the problems, in their order. Each dataset and domain has its share of ``mix`` (default: of
    them), but not more than there are, however the file is sorted.

    Within a share, a hash of the problem decides, so that the choice is reproducible and a longer file changes little.
    """
    if len(problems) <= n:
        return list(problems)
    kinds = [(p.question.dataset, p.question.domain) for p in problems]
    mixed = Counter((p.question.dataset, p.question.domain) for p in mix) or Counter(kinds)

    def rank(index: int) -> bytes:
        question = problems[index].question
        return hashlib.sha256(f"{question.id}\n{question.statement}".encode("utf-8", "surrogatepass")).digest()

    chosen: list[int] = []
    for kind, count in Counter(kind for kind, _ in Quota(mixed).take(n)).items():
        own = (index for index in range(len(problems)) if kinds[index] == kind)
        chosen += sorted(own, key=rank)[:count]
    return [problems[index] for index in sorted(chosen)]


def unseen(some: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """Return the problems of ``some`` whose question is not in ``others``, compared without spaces and case."""
    known = {asked(problem) for problem in others}
    return [problem for problem in some if asked(problem) not in known]


def asked(problem: Problem) -> str:
    """Return the question, without spaces and case."""
    return words_of(f"{problem.question.statement} {problem.question.entry_point or ''}")


@lru_cache(4096)
def words_of(text: str) -> str:
    """Return the words of a problem, equal in copies of it, which may have several ids."""
    return " ".join(text.split()).casefold()
