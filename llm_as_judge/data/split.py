"""A set into train, validation and test: exact sizes, the same for every order of the input, no question on two sides.

Entries come sorted by a hash of the normalised question. The first of them are the test set, the next the validation
set, so that copies stay together and a few records more or less move only the questions at the border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

from llm_as_judge.data.index import NO_CONTEXT, Entry, order


@dataclass(frozen=True, slots=True)
class Sides:
    """One dataset, split. ``dropped`` counts problems that are in none, by reason."""

    train: list[Entry]
    val: list[Entry]
    test: list[Entry]
    dropped: dict[str, int] = field(default_factory=dict)


def without_copies(entries: Sequence[Entry]) -> tuple[list[Entry], dict[str, int]]:
    """Sorted entries, one for each problem (question and context), and how many were dropped: ``duplicates`` with the
    same answer, ``conflicting_duplicates`` with another one.
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
    """Plan C. The test set has ``test / (train + test)`` of the entries, rounded, and the validation set
    ``val_fraction`` of what is left; fewer only where no question with so few problems is left to fill them.
    """
    kept, dropped = without_copies(entries)
    test_size = _share(len(kept), train_test[1], sum(train_test))
    test = _front(kept, test_size)
    rest = _without(kept, test)
    val = _front(rest, round(len(rest) * val_fraction))
    return Sides(_without(rest, val), val, test, dropped)


def split_official(train: Sequence[Entry], test: Sequence[Entry], val_fraction: float = 0.0) -> Sides:
    """The published splits. The test set stays whole, copies included, so that numbers compare; train does not."""
    kept, dropped = without_copies(train)
    val = _front(kept, round(len(kept) * val_fraction))
    return Sides(_without(kept, val), val, sorted(test, key=order), dropped)


def decontaminated(sides: dict[str, Sides]) -> dict[str, Sides]:
    """Questions of any test set leave every train and validation set, those of a validation set every train set; they
    are counted as ``in_a_test_set`` and ``in_a_validation_set``.
    """
    tested = {entry.question for one in sides.values() for entry in one.test}
    clean = {}
    held: set[bytes] = set()
    for name, one in sides.items():
        val = [entry for entry in one.val if entry.question not in tested]
        train = [entry for entry in one.train if entry.question not in tested]
        lost = len(one.val) + len(one.train) - len(val) - len(train)
        clean[name] = Sides(train, val, one.test, {**one.dropped, "in_a_test_set": lost})
        held |= {entry.question for entry in val}
    for name, one in clean.items():
        train = [entry for entry in one.train if entry.question not in held] if held else one.train
        lost = len(one.train) - len(train)
        clean[name] = Sides(train, one.val, one.test, {**one.dropped, "in_a_validation_set": lost})
    return clean


def contamination(sides: dict[str, Sides]) -> dict[str, dict[str, int]]:
    """For every test set, problems of it that all the train sets together have something of: the ``question``, a
    passage of 13 words (``passage``), the same ``context`` with another question.
    """
    questions = {entry.question for one in sides.values() for entry in one.train}
    tested = set(chain.from_iterable(entry.passages for one in sides.values() for entry in one.test))
    passages = tested.intersection(chain.from_iterable(entry.passages for one in sides.values() for entry in one.train))
    contexts = {entry.context for one in sides.values() for entry in one.train} - {NO_CONTEXT}
    return {
        name: {
            "question": sum(entry.question in questions for entry in one.test),
            "passage": sum(not passages.isdisjoint(entry.passages) for entry in one.test),
            "context": sum(entry.context in contexts for entry in one.test),
        }
        for name, one in sides.items()
    }


def _share(n: int, part: int, whole: int) -> int:
    """``n * part / whole``, rounded half up, in whole numbers."""
    return (2 * n * part + whole) // (2 * whole)


def _front(entries: Sequence[Entry], size: int) -> list[Entry]:
    """The first ``size`` entries that can be had without tearing a question's problems apart."""
    taken: list[Entry] = []
    for _, group in groupby(entries, key=lambda entry: entry.question):
        copies = list(group)
        if len(taken) + len(copies) <= size:
            taken += copies
        if len(taken) == size:
            break
    return taken


def _without(entries: Sequence[Entry], taken: Sequence[Entry]) -> list[Entry]:
    if not taken:
        return list(entries)
    gone = {entry.question for entry in taken}
    return [entry for entry in entries if entry.question not in gone]
