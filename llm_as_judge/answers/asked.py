"""What a question asks for: its asking clauses, the names and the units it wants."""

from __future__ import annotations

import re
from functools import lru_cache

from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import UNITS, Unit, unit_named

_LONGEST = 8000
_SENTENCE = re.compile(r"(?<=[.?!])(?<!\d!)\s+|\n")
_QUESTION_WORD = re.compile(  # not the "when" of "When Ann is 9, how old is Ben?"
    r"(?:\w+ed in )?\b(?:what|how|which|who|whose|whom|why|(?:when|where)\b(?!.*, (?:what|how|which|who)\b))\b",
    re.IGNORECASE,
)
_RELATIVE = re.compile("which|who|whose|whom|when|where", re.IGNORECASE)
_TASK_WORD = re.compile(
    r"\b(?:find|compute|evaluate|determine|calculate|simplify|solve|express|write|give|list|name|factor|expand|convert"
    r"|rationalize|complete|order|put)\b",
    re.IGNORECASE,
)
_HEAD = 4  # words
#: What makes a name a part of something else: "coefficient of x^3", "sin x", "for all x".
_OWNER = re.compile(
    r"(\w+) of (?:the |angle )*\Z|\b(?:sin|cos|tan|cot|sec|csc|log|ln)[\s(]*\Z"
    r"|(?<!solve )\bfor (?!which|what)(?:[a-z]+ ){0,2}\Z",
    re.IGNORECASE,
)
#: Every unit by its longest name first, with the word before it.
_UNIT = re.compile(
    r"(?:(?<![\w.,])([\w.,]+)[\s-]+)?(?<![\w\\])((?:"
    + "|".join(re.escape(name) for name in sorted(UNITS, key=len, reverse=True) if len(name) > 1 or name in "$€£¥°%")
    + r")(?:(?: per |/)[A-Za-z]+)?)(?![A-Za-z_^])(\d?)",
    re.IGNORECASE,
)
_TRANSPARENT = frozenset("value values measure length measures solutions".split())
_ONE = frozenset("a an one each every per this last next first same".split())


@lru_cache(maxsize=64)
def asked(question: str) -> str:
    """The clauses that ask, each from its question word or verb to the end of its sentence; all without such words."""
    sentences = _SENTENCE.split(question[-_LONGEST:])
    task = _TASK_WORD.match if "?" in question else _TASK_WORD.search
    found = [_interrogative(s) or _TASK_WORD.search(s) if s.rstrip().endswith("?") else task(s) for s in sentences]
    found = found if any(found) else [*map(_interrogative, sentences)]
    return "\n".join(each.string[each.start() :] for each in found if each) or question[-_LONGEST:]


def _interrogative(sentence: str) -> re.Match[str] | None:
    """The first question word that is not a relative pronoun, as in "The man who fell lived in which city?"."""
    words = [*_QUESTION_WORD.finditer(sentence)]
    asking = (w for w in words if not _RELATIVE.fullmatch(w.group()) or len(sentence[: w.start()].split()) < 2)
    return next(asking, words[-1] if words else None)


def head(question: str) -> str:
    """The first words of each asking clause: they name what is asked, the others may name what is given."""
    return "\n".join(" ".join(clause.split()[:_HEAD]) for clause in asked(question).split("\n"))


def unknowns(question: str) -> set[str]:
    """The letters that stand alone in a question, as ``x`` in "Find all x with x^2 = 4"."""
    return set(re.findall(r"(?<![A-Za-z\\'\u2019])[A-Za-z](?![A-Za-z'\u2019])", question[-_LONGEST:])) - {"a", "A", "I"}


@lru_cache(maxsize=64)
def units(text: str, *, wanted: bool = False) -> tuple[Unit, ...]:
    """The units in ``text``; with ``wanted`` without those of an amount, as in "3 km" and "an hour"."""
    found = []
    text = re.sub(r"\$(?:[^\d\s$][^$]*|\d+[^\s\d.,$][^$\s]*)\$", " ", text)  # a formula
    for before, name, after in _UNIT.findall(text):
        amount = after or before.casefold() in _ONE or number(before.strip(",.")) is not None
        if unit := None if wanted and amount else unit_named(name):
            found.append(unit)
    return tuple(found)


def is_asked(name: str, question: str) -> bool:
    """Whether the question asks for ``name`` itself: ``a + b`` but not ``a`` in "What is a + b?"."""
    name, text = (re.sub(r"\\overline|[\\{}]", "", clean(part)) for part in (name, asked(question)))
    text = re.sub(r"[$ ]+", " ", text)
    if len(name) > 2 and name.isalpha() and not name.isupper():
        name, text = name.casefold(), head(question).casefold()
    if name.isalpha() and name.isupper() and name not in unknowns(question):
        words = re.findall("[a-z]+", (head(question) if len(name) == 1 else text).casefold())
        if name.casefold() in "".join(word[0] for word in words if len(word) > 3 or len(name) > 1):
            return True  # its initials: A of area, GCD of greatest common divisor
    letters = " ?".join(map(re.escape, name.replace(" ", "")))
    found = re.finditer(rf"(?<![\w+*/^|(<>=-])(?<![+*/^|<>=\d-] ){letters}(?![\w(]| ?[+*/^|<>=!'-])", text)
    owners = [_OWNER.search(text[: each.start()]) for each in found]
    return any(owner is None or owner.group(1) in _TRANSPARENT for owner in owners)
