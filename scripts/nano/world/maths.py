"""Word problems in three kinds, solved in steps and, for two of the kinds, by a program.

*sums*: one step with small numbers, which the nano executor solves directly. *chains*: three to six steps with larger
numbers, which it often miscalculates; a program is right. *relays*: who has what after it was passed on twice, easy in
steps; the nano executor is never trained on programs for them.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from world.lexicon import BOXES, FIRST_NAMES, ITEMS, pronoun

_LETTERS = "abcdefgh"


@dataclass(frozen=True, slots=True)
class Task:
    """A problem with its solution; ``program`` is empty for a kind that has none."""

    text: str
    answer: str
    reasoning: str
    program: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an earlier step."""

    index: int


@dataclass(slots=True)
class Story:
    """A problem under construction: sentences and steps ``(left, operator, right, value)``."""

    sentences: list[str] = field(default_factory=list)
    steps: list[tuple[int | Ref, str, int | Ref, int]] = field(default_factory=list)

    def value(self, term: int | Ref) -> int:
        return self.steps[term.index][3] if isinstance(term, Ref) else term

    def say(self, *choices: str, r: Random) -> None:
        self.sentences.append(r.choice(choices))

    def step(self, left: int | Ref, op: str, right: int | Ref) -> Ref:
        a, b = self.value(left), self.value(right)
        self.steps.append((left, op, right, {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[op]))
        return Ref(len(self.steps) - 1)

    @property
    def task(self) -> Task:
        def term(t: int | Ref) -> str:
            return _LETTERS[t.index] if isinstance(t, Ref) else str(t)

        equations, lines = [], ["def solve():"]
        for letter, (a, op, b, value) in zip(_LETTERS, self.steps, strict=False):
            equations.append(f"{self.value(a)}{op}{self.value(b)}={value}")
            lines.append(f"    {letter} = {term(a)} {'//' if op == '/' else op} {term(b)}")
        lines.append(f"    return {_LETTERS[len(self.steps) - 1]}")
        return Task(" ".join(self.sentences), str(self.steps[-1][3]), "\n".join(equations), "\n".join(lines))


def sums(r: Random) -> Task:
    """Ask for one addition, subtraction or doubling of numbers up to 20."""
    story, name, thing = Story(), r.choice(FIRST_NAMES), r.choice(ITEMS)
    who, a, b = pronoun(name), r.randint(4, 20), r.randint(2, 9)
    story.say(f"{name} has {a} {thing}.", f"{name} starts with {a} {thing}.", r=r)
    match r.choice("++--*"):
        case "+":
            story.say(f"{who} buys {b} more.", f"A friend gives {name} another {b}.", f"{who} finds {b} more.", r=r)
            story.step(a, "+", b)
        case "-":
            b = min(b, a - 2)
            story.say(f"{who} gives away {b}.", f"{who} loses {b} of them.", f"{who} sells {b} {thing}.", r=r)
            story.step(a, "-", b)
        case _:
            story.say(f"Then the number of {thing} doubles.", r=r)
            story.step(a, "*", 2)
    story.say(f"How many {thing} does {name} have now?", f"How many {thing} are left at the end?", r=r)
    return story.task


def _begin(r: Random, story: Story, name: str, thing: str) -> int | Ref:
    if r.random() < 0.4:
        v = r.randint(30, 160)
        story.say(f"{name} has {v} {thing}.", f"{name} starts with {v} {thing}.", r=r)
        return v
    a, b = r.randint(3, 48), r.randint(3, 60)
    story.say(f"{name} has {a} {r.choice(BOXES)} with {b} {thing} each.", r=r)
    return story.step(a, "*", b)


def _change(r: Random, story: Story, current: int | Ref, name: str, thing: str, room: int) -> int | Ref:
    """Add an event to the story; returns ``current`` unchanged if the drawn event does not fit."""
    v, who = story.value(current), pronoun(name)
    match r.choice(("add", "add", "sub", "sub", "mul", "share", "half", "group")):
        case "add":
            b = r.randint(2, 180)
            story.say(f"{who} buys {b} more.", f"A friend gives {name} another {b}.", f"{who} finds {b} more.", r=r)
            return story.step(current, "+", b)
        case "sub" if v >= 6:
            b = r.randint(1, min(v - 2, 150))
            story.say(f"{who} gives away {b}.", f"{who} loses {b} of them.", f"{who} sells {b} {thing}.", r=r)
            return story.step(current, "-", b)
        case "mul" if v <= 1500:
            m = r.choice((2, 2, 3))
            story.say(f"Then the number of {thing} {'doubles' if m == 2 else 'triples'}.", r=r)
            return story.step(current, "*", m)
        case "half" if v % 2 == 0 and v >= 6:
            story.say(f"{who} gives half of them away.", f"Half of the {thing} are lost.", r=r)
            return story.step(current, "/", 2)
        case "share" if ways := [k for k in (3, 4, 5) if v % k == 0 and v > k]:
            k = r.choice(ways)
            story.say(f"{who} shares them equally among {k} friends and keeps only one share.", r=r)
            return story.step(current, "/", k)
        case "group" if room >= 2:
            a, b = r.randint(2, 25), r.randint(3, 40)
            story.say(f"{who} adds {a} {r.choice(BOXES)} of {b} {thing} each.", r=r)
            return story.step(current, "+", story.step(a, "*", b))
    return current


def _end(r: Random, story: Story, current: int | Ref, name: str, thing: str) -> None:
    """Add the question and, for some, a last step."""
    v = story.value(current)
    match r.choice(("now", "now", "price", "pack", "together")):
        case "price" if v <= 500:
            c = r.randint(2, 48)
            story.say(f"{pronoun(name)} sells all of them for {c} dollars each. How many dollars is that?", r=r)
            story.step(current, "*", c)
        case "pack" if ways := [k for k in range(2, 10) if v % k == 0 and v > k]:
            k = r.choice(ways)
            story.say(f"{pronoun(name)} packs them in bags of {k}. How many bags are needed?", r=r)
            story.step(current, "/", k)
        case "together":
            other, b = r.choice([n for n in FIRST_NAMES if n != name]), r.randint(2, 90)
            story.say(f"{other} has {b} more {thing} than {name}.", r=r)
            story.say(f"How many {thing} do {name} and {other} have together?", r=r)
            story.step(current, "+", story.step(current, "+", b))
        case _:
            story.say(f"How many {thing} does {name} have now?", f"How many {thing} are left at the end?", r=r)


def _changes(r: Random) -> Story:
    story, name, thing, wanted = Story(), r.choice(FIRST_NAMES), r.choice(ITEMS), r.choice((3, 3, 4, 4, 5))
    current = _begin(r, story, name, thing)
    while len(story.steps) < wanted:
        current = _change(r, story, current, name, thing, wanted - len(story.steps))
    _end(r, story, current, name, thing)
    return story


def _shopping(r: Random) -> Story:
    story, name, (first, second) = Story(), r.choice(FIRST_NAMES), r.sample(ITEMS, 2)
    a, b, c, d = r.randint(2, 30), r.randint(3, 70), r.randint(2, 30), r.randint(3, 70)
    story.say(f"{name} buys {a} {first} at {b} dollars each and {c} {second} at {d} dollars each.", r=r)
    total = story.step(story.step(a, "*", b), "+", story.step(c, "*", d))
    paid = r.choice([p for p in (200, 500, 1000, 2000, 5000) if p > story.value(total)])
    story.say(f"{pronoun(name)} pays with {paid} dollars. How much change is that?", r=r)
    story.step(paid, "-", total)
    return story


def _wages(r: Random) -> Story:
    story, name = Story(), r.choice(FIRST_NAMES)
    a, b, c, x = r.randint(13, 45), r.randint(3, 9), r.randint(6, 24), r.randint(5, 150)
    story.say(f"{name} earns {a} dollars per hour and works {b} hours a day for {c} days.", r=r)
    total = story.step(story.step(a, "*", b), "*", c)
    story.say(f"{pronoun(name)} spends {x} dollars. How many dollars are left?", r=r)
    story.step(total, "-", x)
    return story


def chains(r: Random) -> Task:
    return r.choices((_changes, _shopping, _wages), (6, 1, 1))[0](r).task


def relays(r: Random) -> Task:
    """Pass three people's money on twice, in any order; the steps follow the money asked for.

    Payer and payee are two tokens apart, so that a convolution of width four covers both.
    """
    people = r.sample(FIRST_NAMES, 9)
    passes = [[f"{a} pays {b}.", f"{b} pays {c}."] for a, b, c in (people[i : i + 3] for i in (0, 3, 6))]
    told = " ".join(r.sample([*itertools.chain(*passes)], 6))
    question = f"Who has the money of {people[0]} at the end?"
    return Task(f"They pay with what they get. {told} {question}", people[2], " ".join(passes[0]))


KINDS: Mapping[str, Callable[[Random], Task]] = {"sums": sums, "chains": chains, "relays": relays}
