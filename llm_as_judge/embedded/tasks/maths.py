"""Word problems over the integers of one to five steps, with the solution as steps and as a program.

A direct answer is hard for a nano model, step by step is easier, and a program, which leaves arithmetic to Python, is
easiest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from llm_as_judge.embedded.lexicon import BOXES, FIRST_NAMES, ITEMS, pronoun

_LETTERS = "abcdefgh"
_DISTRACTIONS = (
    "{n} is {k} years old.",
    "The shop opens at {k} o'clock.",
    "It is {k} degrees outside.",
    "There are {k} people in the park.",
)


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an earlier step."""

    index: int


@dataclass(slots=True)
class MathsItem:
    """A problem under construction: sentences and steps ``(left, operator, right, value)``."""

    sentences: list[str] = field(default_factory=list)
    steps: list[tuple[int | Ref, str, int | Ref, int]] = field(default_factory=list)

    def value(self, term: int | Ref) -> int:
        return self.steps[term.index][3] if isinstance(term, Ref) else term

    def step(self, left: int | Ref, op: str, right: int | Ref) -> Ref:
        a, b = self.value(left), self.value(right)
        self.steps.append((left, op, right, {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[op]))
        return Ref(len(self.steps) - 1)

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def answer(self) -> str:
        return str(self.steps[-1][3])

    @property
    def reasoning(self) -> str:
        """One equation per line."""
        return "\n".join(f"{self.value(a)}{op}{self.value(b)}={v}" for a, op, b, v in self.steps)

    @property
    def program(self) -> str:
        def term(t: int | Ref) -> str:
            return _LETTERS[t.index] if isinstance(t, Ref) else str(t)

        lines = ["def solve():"]
        for i, (a, op, b, _) in enumerate(self.steps):
            lines.append(f"    {_LETTERS[i]} = {term(a)} {'//' if op == '/' else op} {term(b)}")
        return "\n".join([*lines, f"    return {_LETTERS[len(self.steps) - 1]}"])


@dataclass(frozen=True, slots=True)
class _Draw:
    """Random numbers; ``small`` limits them to a range of eight, so that some answers can be given directly."""

    r: Random
    small: bool

    def __call__(self, low: int, high: int) -> int:
        return self.r.randint(low, min(high, low + 7) if self.small else high)


def _start(d: _Draw, item: MathsItem, name: str, thing: str) -> int | Ref:
    r = d.r
    if r.random() < 0.55:
        v = d(4, 160)
        item.sentences.append(r.choice((f"{name} has {v} {thing}.", f"{name} starts with {v} {thing}.")))
        return v
    a, b, box = d(3, 48), d(3, 60), r.choice(BOXES)
    item.sentences.append(f"{name} has {a} {box} with {b} {thing} each.")
    return item.step(a, "*", b)


def _change(d: _Draw, item: MathsItem, current: int | Ref, name: str, thing: str, room: int) -> int | Ref:
    """Add an event to the story; returns ``current`` unchanged if the drawn event does not fit."""
    r, v, say = d.r, item.value(current), item.sentences.append
    who = pronoun(name)
    match r.choice(("add", "add", "sub", "sub", "mul", "share", "half", "group")):
        case "add":
            b = d(2, 180)
            say(r.choice((f"{who} buys {b} more.", f"A friend gives {name} another {b}.", f"{who} finds {b} more.")))
            return item.step(current, "+", b)
        case "sub" if v >= 6:
            b = d(1, min(v - 2, 150))
            say(r.choice((f"{who} gives away {b}.", f"{who} loses {b} of them.", f"{who} sells {b} {thing}.")))
            return item.step(current, "-", b)
        case "mul":
            m = r.choice((2, 2, 3))
            if v * m <= 4000:
                say(f"Then the number of {thing} {'doubles' if m == 2 else 'triples'}.")
                return item.step(current, "*", m)
        case "half" if v % 2 == 0 and v >= 6:
            say(r.choice((f"{who} gives half of them away.", f"Half of the {thing} are lost.")))
            return item.step(current, "/", 2)
        case "share":
            ways = [k for k in (3, 4, 5) if v % k == 0 and v > k]
            if ways:
                k = r.choice(ways)
                say(f"{who} shares them equally among {k} friends and keeps only one share.")
                return item.step(current, "/", k)
        case "group" if room >= 2:
            a, b, box = d(2, 25), d(3, 40), r.choice(BOXES)
            say(f"{who} adds {a} {box} of {b} {thing} each.")
            return item.step(current, "+", item.step(a, "*", b))
    return current


def _ending(d: _Draw, item: MathsItem, current: int | Ref, name: str, thing: str) -> bool:
    """Add the last step and its question; False if the drawn one does not fit."""
    r, v, say = d.r, item.value(current), item.sentences.append
    match r.choice(("now", "now", "price", "pack", "compare", "together")):
        case "now":
            if not item.steps:
                return False
            say(r.choice((f"How many {thing} does {name} have now?", f"How many {thing} are left at the end?")))
            return True
        case "price":
            c = d(2, 48)
            if v * c > 20000:
                return False
            say(f"{pronoun(name)} sells all of them for {c} dollars each. How many dollars is that?")
            item.step(current, "*", c)
            return True
        case "pack":
            ways = [k for k in (2, 3, 4, 5, 6, 7, 8, 9) if v % k == 0 and v > k]
            if not ways:
                return False
            k = r.choice(ways)
            say(f"{pronoun(name)} packs them in bags of {k}. How many bags are needed?")
            item.step(current, "/", k)
            return True
        case together:
            other, kind, b = r.choice([n for n in FIRST_NAMES if n != name]), r.choice("+-*"), d(2, 90)
            if kind == "-" and v <= b + 1:
                return False
            if kind == "*":
                say(f"{other} has twice as many {thing} as {name}.")
                theirs = item.step(current, "*", 2)
            else:
                say(f"{other} has {b} {'more' if kind == '+' else 'fewer'} {thing} than {name}.")
                theirs = item.step(current, kind, b)
            if together == "together":
                say(f"How many {thing} do {name} and {other} have together?")
                item.step(current, "+", theirs)
            else:
                say(f"How many {thing} does {other} have?")
            return True


def _story(d: _Draw, wanted: int) -> MathsItem:
    while True:
        item, name, thing = MathsItem(), d.r.choice(FIRST_NAMES), d.r.choice(ITEMS)
        current = _start(d, item, name, thing)
        while len(item.steps) < wanted - 1:
            current = _change(d, item, current, name, thing, wanted - len(item.steps))
        if _ending(d, item, current, name, thing):
            return item


def _shop(d: _Draw, wanted: int) -> MathsItem:
    item, name, things = MathsItem(), d.r.choice(FIRST_NAMES), d.r.sample(ITEMS, 2)
    a, b, c, e = d(2, 30), d(3, 70), d(2, 30), d(3, 70)
    item.sentences.append(f"{name} buys {a} {things[0]} at {b} dollars each and {c} {things[1]} at {e} dollars each.")
    total = item.step(item.step(a, "*", b), "+", item.step(c, "*", e))
    if wanted <= 3:
        item.sentences.append(f"How many dollars does {name} spend?")
        return item
    paid = d.r.choice([p for p in (50, 100, 200, 500, 1000, 2000, 5000) if p > item.value(total)])
    item.sentences.append(f"{pronoun(name)} pays with {paid} dollars. How much change is that?")
    item.step(paid, "-", total)
    return item


def _wage(d: _Draw, wanted: int) -> MathsItem:
    item, name = MathsItem(), d.r.choice(FIRST_NAMES)
    a, b, c = d(8, 45), d(2, 9), d(2, 24)
    item.sentences.append(f"{name} earns {a} dollars per hour and works {b} hours a day for {c} days.")
    total = item.step(item.step(a, "*", b), "*", c)
    if wanted <= 2:
        item.sentences.append(f"How many dollars does {name} earn?")
        return item
    x = d(5, 9 + min(50, item.value(total) - 15))
    item.sentences.append(f"{pronoun(name)} spends {x} dollars. How many dollars are left?")
    item.step(total, "-", x)
    return item


def _ages(d: _Draw, wanted: int) -> MathsItem:
    item, (a, b, c) = MathsItem(), d.r.sample(FIRST_NAMES, 3)
    x, k = d(4, 25), d.r.choice((2, 3))
    y, older = d(2, x), d.r.random() < 0.5
    item.sentences += [
        f"{a} is {x} years old.",
        f"{b} is {'twice' if k == 2 else '3 times'} as old as {a}.",
        f"{c} is {y} years {'older' if older else 'younger'} than {b}.",
    ]
    second = item.step(x, "*", k)
    third = item.step(second, "+" if older else "-", y)
    if wanted <= 2:
        item.sentences.append(f"How old is {c}?")
        return item
    item.sentences.append(f"How old are {b} and {c} together?")
    item.step(second, "+", third)
    return item


def _travel(d: _Draw, wanted: int) -> MathsItem:
    item, name = MathsItem(), d.r.choice(FIRST_NAMES)
    a, b, c, e = d(21, 95), d(2, 18), d(21, 95), d(2, 18)
    item.sentences.append(
        f"{name} drives {b} hours at {a} km per hour and then {e} hours at {c} km per hour. How far is that in km?"
    )
    item.step(item.step(a, "*", b), "+", item.step(c, "*", e))
    return item


def draw(r: Random) -> MathsItem:
    """A random problem; two in five have small numbers and one or two steps."""
    small = r.random() < 0.4
    wanted = r.choices((1, 2), (4, 4))[0] if small else r.choices((1, 2, 3, 4, 5), (1, 3, 4, 3, 2))[0]
    family = r.choices((_story, _shop, _wage, _ages, _travel), (6, 1.3, 1, 1.3, 1))[0]
    item = family(_Draw(r, small), wanted)
    if r.random() < 0.2:
        noise = r.choice(_DISTRACTIONS).format(n=r.choice(FIRST_NAMES), k=r.randint(2, 20))
        item.sentences.insert(r.randrange(len(item.sentences)), noise)
    return item
