"""Passages about invented people, works and cities, with one-hop and two-hop questions and their evidence."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from llm_as_judge.embedded.lexicon import (
    CITIES,
    FIRST_NAMES,
    INSTRUMENTS,
    JOBS,
    PRODUCTS,
    REGIONS,
    SURNAMES,
    TITLES,
    WORKS,
)  # fmt: skip

#: Phrases between a name and a fact about it; short, so that a convolution of width four covers both.
PHRASES = BORN, JOB, PLAYS, KNOWN_FOR, LIES_IN = " comes from", " was a", " plays", " sells", " lies in"


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    answer: str
    evidence: tuple[str, ...]  # sentences of the passage, in the order of the reasoning

    @property
    def hops(self) -> int:
        return len(self.evidence)

    @property
    def reasoning(self) -> str:
        return " ".join(self.evidence)


@dataclass(frozen=True, slots=True)
class Passage:
    text: str
    queries: tuple[Query, ...]

    def draw(self, r: Random) -> Query:
        """A random question; two hops with probability 3/4 if there are any."""
        wanted = 2 if r.random() < 0.75 else 1
        fitting = [q for q in self.queries if q.hops == wanted] or list(self.queries)
        return r.choice(fitting)


def draw(r: Random) -> Passage:
    """A random passage: two or three people, their birthplaces, one or two works, one or two more facts."""
    count = r.choice((2, 2, 3, 3))
    people = [f"{a} {b}" for a, b in zip(r.sample(FIRST_NAMES, count), r.sample(SURNAMES, count), strict=True)]
    cities = r.sample(CITIES, count)
    sentences: list[str] = []
    queries: list[Query] = []

    def fact(sentence: str, question: str, answer: str) -> str:
        sentences.append(sentence)
        queries.append(Query(question, answer, (sentence,)))
        return sentence

    born = [fact(f"{p}{BORN} {c}.", f"Where was {p} born?", c) for p, c in zip(people, cities, strict=True)]
    trait = r.choice(("job", "instrument", "none"))
    traits: list[str] = []
    words = r.sample(JOBS if trait == "job" else INSTRUMENTS, count)
    for person, word in zip(people, words, strict=True):
        if trait == "job":
            traits.append(fact(f"{person}{JOB} {word}.", f"What was the job of {person}?", word))
        elif trait == "instrument":
            traits.append(fact(f"{person}{PLAYS} {word}.", f"Which instrument does {person} play?", word))
    makers = r.sample(range(count), r.choice((1, 2, 2)))
    kinds = r.sample(sorted(WORKS), len(makers))
    for kind, title, i in zip(kinds, r.sample(TITLES, len(makers)), makers, strict=True):
        verb, agent = WORKS[kind]
        year = str(r.randint(1801, 1999))
        made = f"The {kind} {title} was {verb} by {people[i]} in {year}."
        fact(made, f"Who is the {agent} of the {kind} {title}?", people[i])
        queries.append(Query(f"In which year was the {kind} {title} {verb}?", year, (made,)))
        queries.append(Query(f"Where was the {agent} of the {kind} {title} born?", cities[i], (made, born[i])))
        if trait == "job":
            question = f"What was the job of the {agent} of the {kind} {title}?"
            queries.append(Query(question, words[i], (made, traits[i])))
        elif trait == "instrument":
            question = f"Which instrument does the {agent} of the {kind} {title} play?"
            queries.append(Query(question, words[i], (made, traits[i])))
    if r.random() < 0.6:
        products, regions = r.sample(PRODUCTS, count), r.sample(REGIONS, count)
        for i, city in enumerate(cities):
            if r.random() < 0.5:
                said = fact(f"{city}{KNOWN_FOR} {products[i]}.", f"What is {city} known for?", products[i])
                question, answer = f"What is the birthplace of {people[i]} known for?", products[i]
            else:
                said = fact(f"{city}{LIES_IN} {regions[i]}.", f"In which region is {city}?", regions[i])
                question, answer = f"In which region was {people[i]} born?", regions[i]
            queries.append(Query(question, answer, (born[i], said)))
    r.shuffle(sentences)
    return Passage(" ".join(sentences), tuple(queries))
