"""Splits a dataset into train, validation and test: exact sizes, independent of the input's order, no question twice.

Entries are sorted by a hash of the normalised question. The first ones are the test set, the next ones the validation
set. Copies therefore stay together, and additional records move only the questions next to a boundary.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from llm_as_judge.types import Problem

#: Length in words of a shared passage that counts as contamination (Brown et al. 2020, appendix C).
PASSAGE = 13
NO_CONTEXT = bytes(8)
_WORD = re.compile(r"\w+")
_EDGES = ".,;:!?\"'`\u2018\u2019\u201c\u201d"


class Entry(NamedTuple):
    """A problem's line, with the digests by which problems are sorted, grouped and compared."""

    question: bytes  # words of the question, and the seed
    problem: bytes  # question, context and entry point: equal in copies of a problem
    content: bytes  # all fields
    answer: bytes
    context: bytes  # NO_CONTEXT without one
    passages: frozenset[bytes]  # of the question's runs of PASSAGE words
    line: bytes


#: Sort key: a pseudo-random order that depends on the problems and the seed alone.
order = attrgetter("question", "problem", "content")


@dataclass(frozen=True, slots=True)
class Sides:
    """One dataset, split. ``dropped`` counts problems that are on no side, by reason."""

    train: list[Entry]
    val: list[Entry]
    test: list[Entry]
    dropped: dict[str, int] = field(default_factory=dict)


def normalised(text: str) -> tuple[str, list[str]]:
    """Return ``text`` as compared for duplicates, and its words, by which it is split.

    Both ignore case and spaces. The first keeps signs inside and between words: ``2 + 3`` is not ``2 - 3``.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(word.strip(_EDGES) for word in text.split()), _WORD.findall(text)


def entry_of(problem: Problem, seed: int, line: bytes) -> Entry:
    question, reference = problem.question, problem.reference
    same, words = normalised(question.text)
    context = sha256(question.context.encode()).digest()[:8] if question.context else NO_CONTEXT
    answer = "\0".join((*reference.answers, reference.tests, str(reference.unanswerable))).encode()
    rest = "\0".join((question.id, question.text, *question.public_tests, question.prelude)).encode()
    return Entry(
        blake2b((" ".join(words) or same).encode(), digest_size=16, key=b"%d" % seed).digest(),
        blake2b(f"{same}\0{question.entry_point or ''}".encode() + context, digest_size=16).digest(),
        blake2b(rest + answer, digest_size=16).digest(),
        blake2b(answer, digest_size=8).digest(),
        context,
        frozenset(
            blake2b(" ".join(words[i : i + PASSAGE]).encode(), digest_size=8).digest()
            for i in range(len(words) - PASSAGE + 1)
        ),
        line,
    )


def without_copies(entries: Sequence[Entry]) -> tuple[list[Entry], dict[str, int]]:
    """Return sorted entries, one per problem, and how many were dropped: ``duplicates`` with the same answer,
    ``conflicting_duplicates`` with another one.
    """
    kept: list[Entry] = []
    same = other = 0
    for entry in sorted(entries, key=order):
        if kept and entry.problem == kept[-1].problem:
            same += kept[-1].answer == entry.answer
            other += kept[-1].answer != entry.answer
        else:
            kept.append(entry)
    return kept, {"duplicates": same, "conflicting_duplicates": other}


def split(entries: Sequence[Entry], train_test: tuple[int, int], val_fraction: float = 0.0) -> Sides:
    """Give the test set ``test / (train + test)`` of the entries, rounded half up, the validation set ``val_fraction``
    of the rest; fewer only if the next questions have too many problems to fit.
    """
    kept, dropped = without_copies(entries)
    part, whole = train_test[1], sum(train_test)
    test = _front(kept, (2 * len(kept) * part + whole) // (2 * whole))
    rest = _without(kept, test)
    val = _front(rest, round(len(rest) * val_fraction))
    return Sides(_without(rest, val), val, test, dropped)


def split_official(train: Sequence[Entry], test: Sequence[Entry], val_fraction: float = 0.0) -> Sides:
    """Use the published splits. Only train loses its copies; the test set stays complete, so that results compare."""
    kept, dropped = without_copies(train)
    val = _front(kept, round(len(kept) * val_fraction))
    return Sides(_without(kept, val), val, sorted(test, key=order), dropped)


def decontaminated(sides: Mapping[str, Sides]) -> dict[str, Sides]:
    """Remove leaks between datasets from ``sides``: questions of any test set leave every train and validation set, and
    those of any validation set leave every train set. ``dropped`` counts them.
    """
    tested = {entry.question for one in sides.values() for entry in one.test}
    held = {entry.question for one in sides.values() for entry in one.val} - tested
    clean = {}
    for name, one in sides.items():
        val = [entry for entry in one.val if entry.question not in tested]
        untested = [entry for entry in one.train if entry.question not in tested]
        train = [entry for entry in untested if entry.question not in held]
        in_test = len(one.val) + len(one.train) - len(val) - len(untested)
        dropped = {**one.dropped, "in_a_test_set": in_test, "in_a_validation_set": len(untested) - len(train)}
        clean[name] = Sides(train, val, one.test, dropped)
    return clean


def contamination(sides: Mapping[str, Sides]) -> dict[str, dict[str, int]]:
    """Count for every test set the problems that share something with the train sets together: the ``question``,
    a ``passage`` of 13 words, or the ``context``.
    """
    train = [entry for one in sides.values() for entry in one.train]
    questions, contexts = {entry.question for entry in train}, {entry.context for entry in train} - {NO_CONTEXT}
    passages = {passage for entry in train for passage in entry.passages}
    return {
        name: {
            "question": sum(entry.question in questions for entry in one.test),
            "passage": sum(not passages.isdisjoint(entry.passages) for entry in one.test),
            "context": sum(entry.context in contexts for entry in one.test),
        }
        for name, one in sides.items()
    }


def _front(entries: Sequence[Entry], size: int) -> list[Entry]:
    """Take at most ``size`` entries from the front, with all problems of a question or none."""
    taken: list[Entry] = []
    for _, group in groupby(entries, key=attrgetter("question")):
        copies = list(group)
        if len(taken) + len(copies) <= size:
            taken += copies
        if len(taken) == size:
            break
    return taken


def _without(entries: Sequence[Entry], taken: Sequence[Entry]) -> list[Entry]:
    gone = {entry.question for entry in taken}
    return [entry for entry in entries if entry.question not in gone]
