"""Problems of the embedded world, assigned to splits by a hash of their text, so that the splits are disjoint.

``pretrain`` problems train the nano models, ``train`` problems are for GRPO, ``heldout`` problems for evaluation only.
A passage belongs to one split with all its questions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Literal, TypeVar

from llm_as_judge.embedded.tasks import coding, maths, reading
from llm_as_judge.types import Domain, Problem, Question, Reference

Split = Literal["pretrain", "train", "heldout"]
_BUCKETS: tuple[Split, ...] = ("pretrain",) * 16 + ("train",) * 2 + ("heldout",) * 2  # fmt: skip
PUBLIC_TESTS = 2
T = TypeVar("T")


def split_of(key: str) -> Split:
    """The split of a text; the same on every machine and in every run."""
    digest = hashlib.blake2b(" ".join(key.split()).encode(), digest_size=4).digest()
    return _BUCKETS[int.from_bytes(digest, "big") % len(_BUCKETS)]


def draw_in(split: Split, r: Random, draw: Callable[[Random], T], key: Callable[[T], str]) -> T:
    """Draw until the text falls into ``split``."""
    while True:
        item = draw(r)
        if split_of(key(item)) == split:
            return item


def maths_item(r: Random, split: Split) -> maths.MathsItem:
    return draw_in(split, r, maths.draw, lambda item: item.text)


def passage(r: Random, split: Split) -> reading.Passage:
    return draw_in(split, r, reading.draw, lambda item: item.text)


def coding_item(r: Random, split: Split) -> coding.CodingItem:
    return coding.draw(r, accept=lambda text: split_of(text) == split)


def _problem(r: Random, domain: Domain, split: Split) -> Problem:
    if domain == "math":
        m = maths_item(r, split)
        question, reference = Question("", m.text, domain), Reference((m.answer,))
    elif domain == "qa":
        p = passage(r, split)
        query = p.draw(r)
        question, reference = Question("", query.text, domain, context=p.text), Reference((query.answer,))
    else:
        c = coding_item(r, split)
        question = Question("", c.text, domain, entry_point="f", public_tests=c.asserts[:PUBLIC_TESTS])
        reference = Reference(tests="\n".join(c.asserts))
    key = f"{question.statement}\n{reference.answers}{reference.tests}"
    name = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
    named = Question(
        f"embedded/{domain}/{name}", question.text, domain, question.context, question.entry_point,
        question.public_tests, "embedded",
    )  # fmt: skip
    return Problem(named, reference)


def problems(domain: Domain, split: Split, count: int, seed: int = 0) -> list[Problem]:
    """``count`` different problems of one domain and split; the same seed gives the same list."""
    r = Random(f"{domain}/{split}/{seed}")
    found: dict[str, Problem] = {}
    while len(found) < count:
        problem = _problem(r, domain, split)
        found.setdefault(problem.question.statement, problem)
    return list(found.values())
