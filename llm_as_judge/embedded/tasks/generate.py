"""Problems of the embedded world, assigned to splits by a hash of their text, so that the splits are disjoint.

``pretrain`` problems train the nano models, ``train`` problems are for GRPO, ``heldout`` problems for evaluation only.
A passage belongs to one split with all its questions. Most problems begin with a problem of another kind, which is
withdrawn ("Never mind."), so that their first words do not reveal the kind.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Literal, TypeVar

from llm_as_judge.embedded.tasks import coding, maths, reading
from llm_as_judge.types import Domain, Problem, Question, Reference

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


def split_of(key: str) -> Split:
    """The split of a text; the same on every machine and in every run."""
    digest = hashlib.blake2b(" ".join(key.split()).encode(), digest_size=4).digest()
    return _BUCKETS[int.from_bytes(digest, "big") % len(_BUCKETS)]


def draw_in(split: Split, r: Random, draw: Callable[[Random], T], key: Callable[[T], str]) -> T:
    while split_of(key(item := draw(r))) != split:
        pass
    return item


def _aside(r: Random, kinds: Sequence[str], kind: str, text: Callable[[str], str]) -> str:
    """A withdrawn problem of another kind, or an empty text."""
    if r.random() > _ASIDES:
        return ""
    return f"{text(r.choice([other for other in kinds if other != kind]))} Never mind. "


def maths_task(r: Random, split: Split, kind: str) -> maths.Task:
    def own(kind: str) -> maths.Task:
        return draw_in(split, r, maths.KINDS[kind], lambda task: task.text)

    task = own(kind)
    return replace(task, text=_aside(r, KINDS["math"], kind, lambda other: own(other).text) + task.text)


def passage(r: Random, split: Split) -> reading.Passage:
    return draw_in(split, r, reading.draw, lambda made: made.text)


def asked(r: Random, text: reading.Passage, kind: str) -> maths.Task:
    task = r.choice(text.tasks[kind])
    return replace(task, text=_aside(r, KINDS["qa"], kind, lambda other: r.choice(text.tasks[other]).text) + task.text)


def coding_task(r: Random, split: Split, kind: str) -> coding.CodingTask:
    def own(kind: str) -> coding.CodingTask:
        return coding.draw(r, kind, lambda text: split_of(text) == split)

    task = own(kind)
    return replace(task, text=_aside(r, KINDS["code"], kind, lambda other: own(other).text) + task.text)


def solved(r: Random, domain: Domain, split: Split, kind: str) -> tuple[Problem, str]:
    """A problem and its worked solution."""
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
    """``count`` different problems of one domain and split, every second one of the frequent kind, the others in turn.

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
