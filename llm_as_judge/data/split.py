"""Rows into train, validation and test: exact sizes, the same for every order of the input, no question on two sides.

Rows come sorted by a hash of the normalised question. The first of them are the test set, the next the validation set,
so that copies stay together and a few records more or less move only the questions at the border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

from llm_as_judge.data.rows import Row


@dataclass(frozen=True, slots=True)
class Sides:
    """One dataset, split. ``dropped`` counts rows that are in none, by reason."""

    train: list[Row]
    val: list[Row]
    test: list[Row]
    dropped: dict[str, int] = field(default_factory=dict)


def without_copies(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    """Sorted rows, one for each problem (question and context), and how many were dropped: ``duplicates`` with the
    same answer, ``conflicting_duplicates`` with another one.
    """
    kept: list[Row] = []
    same = other = 0
    last = b""
    for row in sorted(rows, key=lambda row: row.key):
        if kept and row.key.startswith(last):
            same += kept[-1].answer == row.answer
            other += kept[-1].answer != row.answer
        else:
            kept.append(row)
            last = row.problem
    return kept, {"duplicates": same, "conflicting_duplicates": other}


def split(rows: Sequence[Row], train_test: tuple[int, int], val_fraction: float = 0.0) -> Sides:
    """Plan C. The test set has ``test / (train + test)`` of the rows, rounded, and the validation set ``val_fraction``
    of what is left; fewer only where no question with so few rows is left to fill them.
    """
    kept, dropped = without_copies(rows)
    test_size = _share(len(kept), train_test[1], sum(train_test))
    test = _front(kept, test_size)
    rest = _without(kept, test)
    val = _front(rest, round(len(rest) * val_fraction))
    return Sides(_without(rest, val), val, test, dropped)


def split_official(train: Sequence[Row], test: Sequence[Row], val_fraction: float = 0.0) -> Sides:
    """The published splits. The test set stays whole, copies included, so that numbers compare; train does not."""
    kept, dropped = without_copies(train)
    val = _front(kept, round(len(kept) * val_fraction))
    return Sides(_without(kept, val), val, sorted(test, key=lambda row: row.key), dropped)


def decontaminated(sides: dict[str, Sides]) -> dict[str, Sides]:
    """Questions of any test set leave every train and validation set, those of a validation set every train set; they
    are counted as ``in_a_test_set`` and ``in_a_validation_set``.
    """
    tested = {row.question for one in sides.values() for row in one.test}
    found = {}
    held: set[bytes] = set()
    for name, one in sides.items():
        val = [row for row in one.val if row.question not in tested]
        train = [row for row in one.train if row.question not in tested]
        lost = len(one.val) + len(one.train) - len(val) - len(train)
        found[name] = Sides(train, val, one.test, {**one.dropped, "in_a_test_set": lost})
        held |= {row.question for row in val}
    for name, one in found.items():
        train = [row for row in one.train if row.question not in held] if held else one.train
        lost = len(one.train) - len(train)
        found[name] = Sides(train, one.val, one.test, {**one.dropped, "in_a_validation_set": lost})
    return found


def contamination(sides: dict[str, Sides]) -> dict[str, dict[str, int]]:
    """For every test set, rows of it that all the train sets together have something of: the ``question``, a passage
    of 13 words (``passage``), the same ``context`` with another question.
    """
    questions = {row.question for one in sides.values() for row in one.train}
    tested = set(chain.from_iterable(row.grams for one in sides.values() for row in one.test))
    passages = tested.intersection(chain.from_iterable(row.grams for one in sides.values() for row in one.train))
    contexts = {row.context for one in sides.values() for row in one.train} - {bytes(8)}
    return {
        name: {
            "question": sum(row.question in questions for row in one.test),
            "passage": sum(not passages.isdisjoint(row.grams) for row in one.test),
            "context": sum(row.context in contexts for row in one.test),
        }
        for name, one in sides.items()
    }


def _share(n: int, part: int, whole: int) -> int:
    """``n * part / whole``, rounded half up, in whole numbers."""
    return (2 * n * part + whole) // (2 * whole)


def _front(rows: Sequence[Row], size: int) -> list[Row]:
    """The first ``size`` rows that can be had without tearing a question's rows apart."""
    taken: list[Row] = []
    for _, group in groupby(rows, key=lambda row: row.question):
        several = list(group)
        if len(taken) + len(several) <= size:
            taken += several
        if len(taken) == size:
            break
    return taken


def _without(rows: Sequence[Row], taken: Sequence[Row]) -> list[Row]:
    if not taken:
        return list(rows)
    gone = {row.question for row in taken}
    return [row for row in rows if row.question not in gone]
