"""Small functions over lists in three kinds.

*clear*: the description has one meaning. *open*: it has several, and only the tests decide, so a draft is often wrong
while a tested and repaired one is right. *long*: it ends with requirements that a draft often omits; no test is given,
but a review against the description finds what is missing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

PUBLIC_TESTS = 2
Phrases = tuple[tuple[tuple[str, ...], str], ...]  # ways to say it, and its source
Readings = tuple[tuple[str, tuple[str, str]], ...]  # a phrase with two meanings, equally often the intended one

_CLEAR_REDUCERS: Phrases = (
    (("sum", "total"), "sum({})"),
    (("number", "count"), "len({})"),
    (("largest", "maximum"), "max({}, default=0)"),
    (("smallest", "minimum"), "min({}, default=0)"),
    (("list",), "{}"),
    (("sorted list",), "sorted({})"),
    (("descending list",), "sorted({}, reverse=True)"),
    (("reversed list",), "{}[::-1]"),
    (("first two",), "{}[:2]"),
    (("last two",), "{}[-2:]"),
)
_OPEN_REDUCERS: Readings = (
    ("ordered list", ("sorted({})", "sorted({}, reverse=True)")),
    ("distinct list", ("sorted(set({}))", "list(dict.fromkeys({}))")),
    ("top value", ("max({}, default=0)", "sum({}[:1])")),
    ("size", ("len({})", "sum({})")),
)
_MAPS: Phrases = (
    (("squares", "second powers"), "x * x"),
    (("cubes",), "x ** 3"),
    (("absolute values",), "abs(x)"),
    (("doubles",), "x * 2"),
    (("negations", "opposites"), "-x"),
    (("values plus {k}",), "x + {k}"),
    (("values times {k}",), "x * {k}"),
    (("remainders modulo {k}",), "x % {k}"),
    (("values minus {k}",), "x - {k}"),
)
_CLEAR_FILTERS: Phrases = (
    (("even numbers",), "x % 2 == 0"),
    (("odd numbers",), "x % 2 == 1"),
    (("positive numbers",), "x > 0"),
    (("negative numbers",), "x < 0"),
    (("numbers greater than {k}", "numbers larger than {k}"), "x > {k}"),
    (("numbers less than {k}", "numbers smaller than {k}"), "x < {k}"),
    (("multiples of {k}", "numbers divisible by {k}"), "x % {k} == 0"),
    (("numbers at least {k}",), "x >= {k}"),
    (("numbers at most {k}",), "x <= {k}"),
    (("numbers not equal to {k}",), "x != {k}"),
)
_OPEN_FILTERS: Readings = (
    ("numbers from {k} up", ("x >= {k}", "x > {k}")),
    ("numbers under {k}", ("x < {k}", "x <= {k}")),
    ("numbers between {k} and {j}", ("{k} <= x <= {j}", "{k} < x < {j}")),
    ("big numbers", ("x > 10", "x > 5")),
    ("small numbers", ("x < 10", "x < 5")),
)
_REQUIREMENTS: tuple[tuple[str, str], ...] = (
    ("Ignore the first value.", "xs = xs[1:]"),
    ("Ignore the last value.", "xs = xs[:-1]"),
    ("Leave out repeats.", "xs = list(dict.fromkeys(xs))"),
    ("Take negative values as 0.", "xs = [max(x, 0) for x in xs]"),
    ("Add 1 to every value first.", "xs = [x + 1 for x in xs]"),
)


@dataclass(frozen=True, slots=True)
class CodingTask:
    text: str
    solution: str
    draft: str  # a typical first draft: the solution, or for long tasks the part before the requirements
    others: tuple[str, ...]  # the readings that are not meant
    missing: str  # the requirements that the draft forgets
    cases: tuple[tuple[Any, Any], ...]  # (argument, expected value)

    @property
    def asserts(self) -> tuple[str, ...]:
        return tuple(f"assert f({x!r}) == {y!r}" for x, y in self.cases)

    @property
    def public(self) -> tuple[str, ...]:
        """The tests that a workflow may see; long tasks come without."""
        return () if self.missing else self.asserts[:PUBLIC_TESTS]


def call(source: str, argument: Any) -> Any:
    """Evaluate ``f(argument)`` for a reading made by this module (never for a model's text)."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"](argument)


def _sketch(r: Random, unclear: bool) -> tuple[str, list[str], Callable[[], Any]]:
    """Draw a task before its tests: what is asked, the sources of all readings, and what makes an argument."""
    k = r.randint(2, 9)
    values = {"k": k, "j": k + r.randint(3, 7)}
    where = r.choice(("reducer", "filter", "filter")) if unclear else ""
    phrase, reducers = r.choice(_OPEN_REDUCERS) if where == "reducer" else _drawn(r, _CLEAR_REDUCERS)
    mapped = r.random() < 0.5
    subject, conditions = "values", [""]
    if where == "filter":
        subject, meanings = r.choice(_OPEN_FILTERS)
        conditions = [f" if {meaning}" for meaning in meanings]
    elif not mapped or r.random() < 0.7:
        subject, (meaning,) = _drawn(r, _CLEAR_FILTERS)
        conditions = [f" if {meaning}"]
    subject, conditions = subject.format(**values), [c.format(**values) for c in conditions]
    expression = "x"
    if mapped:
        name, (expression,) = _drawn(r, _MAPS)
        other = {"k": r.randint(2, 9)}
        subject, expression = f"{name.format(**other)} of the {subject}", expression.format(**other)
    readings = [
        f"def f(xs):\n    ys = [{expression} for x in xs{c}]\n    return {reducer.format('ys')}"
        for reducer in reducers
        for c in conditions
    ]
    edges = [int(n) for n in re.findall(r"\d+", subject)] + [5, 10]

    def argument() -> list[int]:
        return [r.choice(edges) if r.random() < 0.3 else r.randint(-9, 20) for _ in range(r.randint(4, 6))]

    return f"Write a Python function f(xs) that returns the {phrase} of the {subject} in xs.", readings, argument


def _drawn(r: Random, phrases: Phrases) -> tuple[str, tuple[str]]:
    names, source = r.choice(phrases)
    return r.choice(names), (source,)


def _demanding(r: Random, asked: str, draft: str) -> tuple[str, str, str]:
    """Draw text, solution and requirements of a long task."""
    added = r.sample(_REQUIREMENTS, r.choice((1, 2)))
    head, _, body = draft.partition("\n")
    lines = "".join(f"    {line}\n" for _, line in added)
    missing = " ".join(text for text, _ in added)
    return f"{asked} {missing}", f"{head}\n{lines}{body}", missing


def draw(r: Random, kind: str, accept: Callable[[str], bool] = lambda text: True, cases: int = 7) -> CodingTask:
    """Draw a random task with ``cases`` tests; the first two tell the solution from other readings, all from the draft.

    ``accept`` filters descriptions before the tests are made, which is the slow part.
    """
    while True:
        text, readings, argument = _sketch(r, unclear=kind == "open")
        solution = draft = r.choice(readings)
        missing = ""
        if kind == "long":  # of one reading
            text, solution, missing = _demanding(r, text, draft)
        if not accept(text):
            continue
        others = tuple(source for source in readings if source != draft)
        checks = tuple((x, call(solution, x)) for x in (argument() for _ in range(cases)))
        told = all(any(call(o, x) != y for x, y in checks[:PUBLIC_TESTS]) for o in others)
        if told and (draft == solution or any(call(draft, x) != y for x, y in checks)):
            return CodingTask(text, solution, draft, others, missing, checks)
