"""Small functions over lists and strings, described in one line that is often ambiguous.

Only the tests decide between the readings, so a first draft is often wrong while a tested and repaired one is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Reading = tuple[str, float]  # source text and probability of being the intended one

_AMBIGUOUS_FILTERS = 0.8
_REDUCERS: tuple[tuple[tuple[str, ...], tuple[Reading, ...]], ...] = (
    (("sum", "total"), (("sum({})", 1),)),
    (("number", "count"), (("len({})", 1),)),
    (("largest", "maximum"), (("max({}, default=0)", 1),)),
    (("smallest", "minimum"), (("min({}, default=0)", 1),)),
    (("list",), (("{}", 1),)),
    (("sorted list",), (("sorted({})", 1),)),
    (("descending list",), (("sorted({}, reverse=True)", 1),)),
    (("reversed list",), (("{}[::-1]", 1),)),
    (("first two",), (("{}[:2]", 1),)),
    (("last two",), (("{}[-2:]", 1),)),
    (("ordered list",), (("sorted({})", 0.5), ("sorted({}, reverse=True)", 0.5))),
    (("distinct list",), (("sorted(set({}))", 0.6), ("list(dict.fromkeys({}))", 0.4))),
    (("top value",), (("max({}, default=0)", 0.6), ("sum({}[:1])", 0.4))),
    (("size",), (("len({})", 0.5), ("sum({})", 0.5))),
)
_MAPS: tuple[tuple[tuple[str, ...], str], ...] = (
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
_CLEAR_FILTERS: tuple[tuple[tuple[str, ...], str], ...] = (
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
_OPEN_FILTERS: tuple[tuple[str, tuple[Reading, ...]], ...] = (
    ("numbers from {k} up", (("x >= {k}", 0.5), ("x > {k}", 0.5))),
    ("numbers under {k}", (("x < {k}", 0.5), ("x <= {k}", 0.5))),
    ("numbers between {k} and {j}", (("{k} <= x <= {j}", 0.5), ("{k} < x < {j}", 0.5))),
    ("big numbers", (("x > 10", 0.5), ("x > 5", 0.5))),
    ("small numbers", (("x < 10", 0.5), ("x < 5", 0.5))),
)
_LETTERS: tuple[tuple[str, str], ...] = (
    ("vowels", "c in 'aeiou'"),
    ("consonants", "c not in 'aeiou'"),
    ("digits", "c.isdigit()"),
    ("letters", "c.isalpha()"),
    ("uppercase letters", "c.isupper()"),
    ("lowercase letters", "c.islower()"),
)
_STRING_TASKS: tuple[tuple[str, tuple[Reading, ...]], ...] = (
    ("the number of {f} in s", (("len([c for c in s if {c}])", 1),)),
    ("only the {f} of s", (("''.join([c for c in s if {c}])", 1),)),
    ("s without the {f}", (("''.join([c for c in s if not ({c})])", 1),)),
    ("the {f} of s in reverse order", (("''.join([c for c in s if {c}])[::-1]", 1),)),
    (
        "s with the {f} in the other case",
        (
            ("''.join([c.swapcase() if {c} else c for c in s])", 0.5),
            ("''.join([c.upper() if {c} else c for c in s])", 0.5),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class CodingItem:
    """``solution`` is the intended reading of ``text``, ``others`` are the other readings."""

    text: str
    solution: str
    others: tuple[str, ...]
    cases: tuple[tuple[Any, Any], ...]  # (argument, expected value)

    @property
    def asserts(self) -> tuple[str, ...]:
        return tuple(f"assert f({x!r}) == {y!r}" for x, y in self.cases)


def call(source: str, argument: Any) -> Any:
    """``f(argument)`` for a reading made by this module (never for a model's text)."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"](argument)


def _choose(r: Random, readings: list[Reading]) -> str:
    return r.choices([text for text, _ in readings], [weight for _, weight in readings])[0]


def _list_task(r: Random) -> tuple[str, list[Reading], Callable[[], Any]]:
    k = r.randint(2, 9)
    values = {"k": k, "j": k + r.randint(3, 7)}
    wants_open = r.random() < 0.6
    phrases, reducers = r.choice([x for x in _REDUCERS if (len(x[1]) > 1) == wants_open])
    filtered, mapped = r.random() < 0.7, r.random() < 0.5
    filtered = filtered or not mapped
    subject, conditions = "values", [("", 1.0)]
    if filtered and r.random() < _AMBIGUOUS_FILTERS:
        subject, options = r.choice(_OPEN_FILTERS)
        conditions = [(f" if {c.format(**values)}", w) for c, w in options]
    elif filtered:
        names, condition = r.choice(_CLEAR_FILTERS)
        subject, conditions = r.choice(names), [(f" if {condition.format(**values)}", 1.0)]
    subject = subject.format(**values)
    expression = "x"
    if mapped:
        names, expression = r.choice(_MAPS)
        other = {"k": r.randint(2, 9)}
        subject = f"{r.choice(names).format(**other)} of the {subject}"
        expression = expression.format(**other)
    readings = [
        (f"def f(xs):\n    ys = [{expression} for x in xs{c}]\n    return {reduce.format('ys')}", w1 * w2)
        for reduce, w1 in reducers
        for c, w2 in conditions
    ]
    edges = [int(n) for n in re.findall(r"\d+", subject)] + [5, 10]

    def argument() -> list[int]:
        return [r.choice(edges) if r.random() < 0.3 else r.randint(-9, 20) for _ in range(r.randint(4, 6))]

    return (
        f"Write a Python function f(xs) that returns the {r.choice(phrases)} of the {subject} in xs.",
        readings,
        argument,
    )


def _string_task(r: Random) -> tuple[str, list[Reading], Callable[[], Any]]:
    letters, condition = r.choice(_LETTERS)
    text, options = r.choice(_STRING_TASKS)
    readings = [(f"def f(s):\n    return {e.format(c=condition)}", w) for e, w in options]

    def argument() -> str:
        return "".join(r.choice("abcdeiouXYEA12") for _ in range(r.randint(4, 7)))

    return f"Write a Python function f(s) that returns {text.format(f=letters)}.", readings, argument


def draw(r: Random, cases: int = 7, accept: Callable[[str], bool] = lambda text: True) -> CodingItem:
    """A random task with ``cases`` tests; every other reading fails at least one of the first two.

    ``accept`` filters descriptions before the tests are made, which is the slow part.
    """
    while True:
        text, readings, argument = (_list_task if r.random() < 0.8 else _string_task)(r)
        if not accept(text):
            continue
        solution = _choose(r, readings)
        others = tuple(s for s, _ in readings if s != solution)
        arguments = [argument() for _ in range(cases)]
        shown = arguments[:2]
        if all(any(call(o, x) != call(solution, x) for x in shown) for o in others):
            return CodingItem(text, solution, others, tuple((x, call(solution, x)) for x in arguments))
