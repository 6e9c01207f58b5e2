"""Problems of the embedded world, assigned to splits by a hash of their text, so that the splits are disjoint.

``pretrain`` problems train the nano models, ``train`` problems are for GRPO, ``heldout`` problems for evaluation only.
A passage belongs to one split with all its questions. Most problems begin with a problem of another kind, which is
withdrawn ("Never mind."), so that their first words do not reveal the kind.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Literal, TypeVar

from llm_as_judge.types import Domain, Problem, Question, Reference
from world import coding, maths, reading

Split = Literal["pretrain", "train", "heldout"]
_BUCKETS: tuple[Split, ...] = ("pretrain",) * 16 + ("train",) * 2 + ("heldout",) * 2  # fmt: skip
#: Kinds of problem, which are the names of the generated datasets. In each domain they need different workflows.
KINDS: Mapping[Domain, tuple[str, ...]] = {
    "math": ("sums", "chains", "relays"),
    "code": ("clear", "open", "long"),
    "qa": ("lookup", "hops", "numbers"),
}
#: Half of each domain's problems are of this kind. The workflow that is right on the other two is wrong on it, so that
#: no single workflow is right on most problems.
_FREQUENT: Mapping[Domain, str] = {"math": "chains", "code": "open", "qa": "numbers"}
_ASIDES = 0.75  # share of problems that begin with one of another kind, so that words do not reveal the kind
T = TypeVar("T")
A = TypeVar("A", maths.Task, coding.CodingTask)


def split_of(key: str) -> Split:
    """Choose the split of a text; the same on every machine and in every run."""
    digest = hashlib.blake2b(" ".join(key.split()).encode(), digest_size=4).digest()
    return _BUCKETS[int.from_bytes(digest, "big") % len(_BUCKETS)]


def draw_in(split: Split, r: Random, draw: Callable[[Random], T], key: Callable[[T], str]) -> T:
    while split_of(key(item := draw(r))) != split:
        pass
    return item


def _with_aside(r: Random, domain: Domain, kind: str, draw: Callable[[str], A]) -> A:
    """Draw a task of ``kind``, after a withdrawn one of another kind in most cases."""
    task = draw(kind)
    if r.random() > _ASIDES:
        return task
    other = r.choice([other for other in KINDS[domain] if other != kind])
    return replace(task, text=f"{draw(other).text} Never mind. {task.text}")


def maths_task(r: Random, split: Split, kind: str) -> maths.Task:
    return _with_aside(r, "math", kind, lambda kind: draw_in(split, r, maths.KINDS[kind], lambda task: task.text))


def passage(r: Random, split: Split) -> reading.Passage:
    return draw_in(split, r, reading.draw, lambda made: made.text)


def asked(r: Random, text: reading.Passage, kind: str) -> maths.Task:
    return _with_aside(r, "qa", kind, lambda kind: r.choice(text.tasks[kind]))


def coding_task(r: Random, split: Split, kind: str) -> coding.CodingTask:
    return _with_aside(r, "code", kind, lambda kind: coding.draw(r, kind, lambda text: split_of(text) == split))


def solved(r: Random, domain: Domain, split: Split, kind: str) -> tuple[Problem, str]:
    """Draw a problem and its worked solution."""
    context, entry = "", None
    public: tuple[str, ...] = ()
    if domain == "code":
        code = coding_task(r, split, kind)
        text, public, entry, solution = code.text, code.public, "f", code.solution
        reference = Reference(tests="\n".join(code.asserts))
    else:
        if domain == "math":
            task = maths_task(r, split, kind)
        else:
            read = passage(r, split)
            task, context = asked(r, read, kind), read.text
        text, reference = task.text, Reference((task.answer,))
        solution = f"{task.reasoning}\n{task.program}"
    key = f"{context}\n{text}\n{reference.answers}{reference.tests}"
    name = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
    question = Question(f"embedded/{kind}/{name}", text, domain, context, entry, public, kind)
    return Problem(question, reference), solution


def problems(domain: Domain, split: Split, count: int, seed: int = 0) -> list[Problem]:
    """Draw ``count`` different problems of one domain and split, every second of the frequent kind, the others in turn.

    The same seed gives the same list.
    """
    r = Random(f"{domain}/{split}/{seed}")
    frequent = _FREQUENT[domain]
    turns = [turn for kind in KINDS[domain] if kind != frequent for turn in (kind, frequent)]
    found: dict[str, Problem] = {}
    while len(found) < count:
        problem, _ = solved(r, domain, split, turns[len(found) % len(turns)])
        found.setdefault(problem.question.statement, problem)
    return list(found.values())
