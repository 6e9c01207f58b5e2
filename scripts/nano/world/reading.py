"""Passages about invented people, works and cities, with three kinds of question.

*lookup*: one sentence has the answer. *hops*: two sentences, the first leads to the second. *numbers*: an amount
computed from two sentences, for which a program is more reliable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from world.lexicon import (
    CITIES,
    FIRST_NAMES,
    INSTRUMENTS,
    ITEMS,
    JOBS,
    PRODUCTS,
    REGIONS,
    SURNAMES,
    TITLES,
    WORKS,
)  # fmt: skip
from world.maths import Story, Task

#: Phrases between a name and a fact about it; short, so that a convolution of width four covers both.
PHRASES = BORN, JOB, PLAYS, SELLS, LIES_IN = " comes from", " was a", " plays", " sells", " lies in"


@dataclass(frozen=True, slots=True)
class Passage:
    """``tasks`` are questions on ``text`` by kind, at least one of each."""

    text: str
    tasks: Mapping[str, Sequence[Task]]


def draw(r: Random) -> Passage:
    """Draw a random passage: two or three people, their birthplaces, traits and sales, works, facts about cities."""
    count = r.choice((2, 2, 3))
    people = [f"{a} {b}" for a, b in zip(r.sample(FIRST_NAMES, count), r.sample(SURNAMES, count), strict=True)]
    cities = r.sample(CITIES, count)
    sentences: list[str] = []
    lookup: list[Task] = []
    hops: list[Task] = []

    def fact(sentence: str, question: str, answer: str) -> str:
        sentences.append(sentence)
        lookup.append(Task(question, answer, sentence))
        return sentence

    born = [fact(f"{p}{BORN} {c}.", f"Where was {p} born?", c) for p, c in zip(people, cities, strict=True)]
    if r.random() < 0.5:
        words, phrase, asked = r.sample(JOBS, count), JOB, "What was the job of {}?"
    else:
        words, phrase, asked = r.sample(INSTRUMENTS, count), PLAYS, "Which instrument does {} play?"
    traits = [fact(f"{p}{phrase} {w}.", asked.format(p), w) for p, w in zip(people, words, strict=True)]
    makers = r.sample(range(count), r.choice((1, 2)))
    works = r.sample(sorted(WORKS), len(makers))
    for work, title, i in zip(works, r.sample(TITLES, len(makers)), makers, strict=True):
        verb, agent = WORKS[work]
        year, maker = str(r.randint(1801, 1999)), f"the {agent} of the {work} {title}"
        made = fact(f"The {work} {title} was {verb} by {people[i]} in {year}.", f"Who is {maker}?", people[i])
        lookup.append(Task(f"In which year was the {work} {title} {verb}?", year, made))
        hops.append(Task(f"Where was {maker} born?", cities[i], f"{made} {born[i]}"))
        hops.append(Task(asked.format(maker), words[i], f"{made} {traits[i]}"))
    for person, city, home in zip(people, cities, born, strict=True):
        place = r.random()
        if place < 0.2:
            product = r.choice(PRODUCTS)
            said = fact(f"{city}{SELLS} {product}.", f"What is {city} known for?", product)
            hops.append(Task(f"What is the birthplace of {person} known for?", product, f"{home} {said}"))
        elif place < 0.4:
            region = r.choice(REGIONS)
            said = fact(f"{city}{LIES_IN} {region}.", f"In which region is {city}?", region)
            hops.append(Task(f"In which region was {person} born?", region, f"{home} {said}"))
    sales, numbers = _sales(r, *people[:2])
    sentences += sales
    r.shuffle(sentences)
    return Passage(" ".join(sentences), {"lookup": lookup, "hops": hops, "numbers": numbers})


def _sales(r: Random, first: str, second: str) -> tuple[list[str], list[Task]]:
    """Draw what two people sell, and questions on their receipts."""
    n, a, m, b = (r.randint(12, 60) for _ in range(4))
    if n * a < m * b:
        first, second = second, first
        n, a, m, b = m, b, n, a
    things = r.sample(ITEMS, 2)
    sentences = [
        f"{first}{SELLS} {n} {things[0]} at {a} dollars each.",
        f"{second}{SELLS} {m} {things[1]} at {b} dollars each.",
    ]
    tasks = []
    for op, question in {
        "+": f"How many dollars do {first} and {second} get together?",
        "-": f"How many dollars more does {first} get than {second}?",
    }.items():
        story = Story([question])
        story.step(story.step(n, "*", a), op, story.step(m, "*", b))
        task = story.task
        head, *lines = task.program.splitlines()
        told = "\n".join(f"    # {sentence}\n{line}" for sentence, line in zip(sentences, lines, strict=False))
        program = "\n".join([head, told, *lines[2:]])
        tasks.append(replace(task, program=program, reasoning=" ".join(sentences) + "\n" + task.reasoning))
    return sentences, tasks
