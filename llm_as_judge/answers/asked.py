"""What a question asks for: its asking clauses, the noun it counts, the units it wants, and what restates it."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import UNITS, Unit, split_unit, unit_named

_LONGEST = 8000
_SENTENCE = re.compile(r"(?<=[.?!])\s+|\n")
_QUESTION_WORD = re.compile(r"\b(?:what|how)\b|\b(?:which|who|whose|whom|when|where|why)\b", re.IGNORECASE)
_TASK_WORD = re.compile(
    r"\b(?:find|compute|evaluate|determine|calculate|simplify|solve|express|write|give|list|name|factor|expand|convert"
    r"|rationalize|complete|order|put)\b",
    re.IGNORECASE,
)
_HEAD = 4  # words
#: Words that may stand around an answer.
_EMPTY = """
so thus therefore hence and we this that it it's there the our my is are was be equals get find have obtain gives a an
final correct answer solution solutions result value values required desired as for of in on at to which number conclude
finally particular checking such has by measure its
"""
#: Words that may turn, limit or hedge what is stated: conditions and answers of somebody else, then others.
_FOREIGN = """
unless if suppose assume were might may could would should can must says said say thinks think thought believes claims
claimed guess guessed wrong incorrect incorrectly false mistake mistaken
"""
_TURNING = """
not no never none neither nor cannot except without when where or either than less more minus plus half twice double
third quarter instead about approximately almost nearly roughly between other another first before per each every only
"""
_ASKING = """
what how many much which who whose whom when where why compute evaluate determine calculate simplify solve express write
give list name do does did will your between
"""
#: Quantities, which may stand before an answer if it is not known what was asked.
_QUANTITIES = """
sum product area volume length distance probability domain range function points roots integer integers real positive
only distinct possible maximum minimum least greatest smallest largest angle triangle trapezoid quadratic matrix pair
"""
_PRONOUNS = "he she they them his her their"
_PLAIN = " is are was were it of in on at both"
_DIRECTIONS = "by to for as and"  # they tell who does what
_OPEN_FORMULA = re.compile(r"(?:\$\$?|\\[(\[])((?:[^$=]|\\\$)*)=[^$]*\Z")
_ENDINGS = (("'s", ""), ("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_MARKUP = re.compile(r"\\(?:begin|end)\{\w+\*?\}|\\(?:text\w*|math\w+|left|right|q?quad)(?![A-Za-z])|\\[()\[\] ,;!]|[${}*`]")
_COPULAS = frozenset("is are was do doe does did there".split())
_COUNTED = re.compile(r"\b(?:how many|number of) ((?:[A-Za-z]+ ?){1,6})", re.IGNORECASE)
#: Every unit by its longest name first, with the word before it.
_UNIT = re.compile(
    r"(?:(?<![\w.,])([\w.,]+)[\s-]+)?(?<![\w\\])((?:"
    + "|".join(re.escape(name) for name in sorted(UNITS, key=len, reverse=True) if len(name) > 1 or name in "$€£¥°%")
    + r")(?:(?: per |/)[A-Za-z]+)?)(?![A-Za-z_^])(\d?)",
    re.IGNORECASE,
)
_ONE = frozenset("a an one each every per".split())


@lru_cache(maxsize=64)
def asked(question: str) -> str:
    """The clauses that ask, each from its question word or verb to the end of its sentence; all without such words."""
    sentences = _SENTENCE.split(question[-_LONGEST:])
    task = _TASK_WORD.match if "?" in question else _TASK_WORD.search
    found = [_QUESTION_WORD.search(s) if s.rstrip().endswith("?") else task(s) for s in sentences]
    found = found if any(found) else [*map(_QUESTION_WORD.search, sentences)]
    return "\n".join(each.string[each.start() :] for each in found if each) or question[-_LONGEST:]


def head(question: str) -> str:
    """The first words of each asking clause: they name what is asked, the others may name what is given."""
    return "\n".join(" ".join(clause.split()[:_HEAD]) for clause in asked(question).split("\n"))


def unknowns(question: str) -> set[str]:
    """The letters that stand alone in a question, as ``x`` in "Find all x with x^2 = 4"."""
    return set(re.findall(r"(?<![A-Za-z\\'\u2019])[A-Za-z](?![A-Za-z'\u2019])", question[-_LONGEST:])) - {"a", "A", "I"}


def counted(words: str, question: str) -> bool:
    """Whether the question counts ``words``: "legs" and "legs left" for "How many legs are left?"."""
    wanted = words.casefold().split()
    said = [found.group(1).casefold().split() for found in _COUNTED.finditer(question[-2000:])]
    return bool(wanted) and any([w for w in noun if w not in {*_COPULAS, "were"}][: len(wanted)] == wanted for noun in said)


def _stem(word: str) -> str:
    """A word in lower case without its ending; other signs as they are."""
    if len(word) < 2 or not word.replace("'", "").isalpha():
        return word
    word = word.casefold()
    for ending, new in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending) + new
            break
    return word.removesuffix("e") if len(word) > 3 else word


@lru_cache(maxsize=256)
def _stems(text: str) -> tuple[str, ...]:
    """The words and formulas of ``text`` without markup, case and endings."""
    text = _MARKUP.sub(" ", text.replace("\u2019", "'").replace("\\angle", "angle "))
    text = re.sub(r"(?<=\w)-(?=[A-Za-z]{2})", " ", text)
    text = re.sub(r"\s*([-+*/^=<>])\s*", r"\1", text)
    words = (word.strip(".,;:!?()[]\"'\u201c\u201d") for word in text.split())
    return tuple(_stem(word).replace("altogether", "total") for word in words if any(map(str.isalnum, word)))


@lru_cache(maxsize=16)
def _known(words: str) -> frozenset[str]:
    return frozenset(_stems(words))


def doubtful(text: str) -> bool:
    """Whether ``text`` sets a condition or speaks of somebody else's answer."""
    return not _known(_FOREIGN).isdisjoint(_stems(text))


def restates(lead: str, question: str, value: str = "", tail: str = "", *, by_fact: bool = False) -> bool:
    """Whether a sentence, ``lead`` with ``value`` and ``tail``, says about ``value`` only what the ``question`` asks.

    All words must be empty or asked ones and have the order of the question; one that may turn the meaning, a letter or
    a number must stand next to the same word. If all asked words are said, the subject may be any word that is given.
    If not, those that are said must be the first ones, and either one of them is not given as well or all others are.
    A value that could hardly be another fact's (``by_fact``) needs only the first words, or a pronoun for them.
    """
    if "?" in lead + tail or lead.casefold().startswith("to "):
        return False
    if formula := _OPEN_FORMULA.search(lead):  # the value is its last side
        name = formula.group(1).strip()
        lead = lead[: formula.start()] + (f" {name}=" if name in unknowns(question) else "")
    before, after = _stems(lead), _stems(tail)
    words, empty, turning = (*before, "", *after), _known(_EMPTY), _known(_TURNING + _FOREIGN)
    if not question:
        known = empty | _known(_QUANTITIES)
        return all(w in known or not re.search(r"[^\W\d_]{2}", w) or w[0] == "\\" for w in words)
    clause, pronouns = _stems(asked(question)), _known(_PRONOUNS)
    pairs = [*zip(clause, (*clause[1:], ""), strict=True)]
    given = Counter(_stems(question[-_LONGEST:])) - Counter(clause)
    wanted = [w for w in clause if w.isalpha() and len(w) > 1 and w not in empty | _known(_ASKING) | pronouns]
    wanted = [*dict.fromkeys(w for w in wanted if ("how", w) not in pairs)]
    named, subject = [], ""
    for i, word in enumerate(words):
        left, right = words[i - 1] if i else "", (*words, "")[i + 1]
        direction = by_fact and word in _known(_DIRECTIONS)
        past = word == "wer" and not {"wer", "was", "did"}.isdisjoint(clause)
        if not word or ((word in _COPULAS or past) and i) or (word == "A" and not i and not by_fact):
            continue
        if by_fact and word in pronouns | {"it", "both"}:
            subject = subject or word
        elif "=" in word or word.startswith("\\"):
            if by_fact or word[:-1] in unknowns(question) and not is_asked(word[:-1], question):
                return False
        elif word in empty and not direction and not (word == "number" and i > len(before)):
            continue
        elif word == "total" or (word in clause and _fits(word, left, right, pairs, direction)):
            named += [word] if word in clause else []
        elif i < len(before) and not (named or subject) and word not in turning and word in {*given} | pronouns:
            subject = word
        else:
            return False
    if not named:
        return (pronouns | _known(_PLAIN)).issuperset(filter(None, words)) if by_fact else not subject
    counted_first = [w for w in _stems(head(question)) if w in wanted and {("how", "much"), ("how", "many")} & {*pairs}]
    for part in (before, after):
        order = iter(clause)
        moved = turning | {"total", *counted_first} | {w for w in clause if ("how", w) in pairs}
        if before[-1:] != ("by",) and not all(w in order for w in part if w in named and w not in moved):
            return False
    said = {*named, *_stems(value)}
    if clean(value)[:1] in ("$", "€", "£", "¥") or split_unit(clean(value)):  # a unit tells what is counted
        said |= {*counted_first} - turning
    if subject in pronouns:
        said |= {_stem(w) for w in re.findall(r"(?<=[a-z] )[A-Z][a-z]+", question)}
    if said.issuperset(wanted):
        return True
    if by_fact:
        wanted = [w for w in wanted if not {("what", w), ("which", w), ("many", w)}.intersection(pairs)]
        if re.search(rf"\band (?:in )?(?:{_QUESTION_WORD.pattern})", question, re.IGNORECASE):
            return False
        if subject:
            return subject in pronouns | {"it", "both"}
        return not said.intersection(wanted) or _begin(wanted, said)
    if "such" in words:
        return not said.isdisjoint(counted_first)
    known = any(w not in given for w in named) or all(w in given for w in wanted if w not in said)
    return not subject and known and _begin(wanted, said)


def _begin(wanted: list[str], said: set[str]) -> bool:
    """Whether the words that are said are the first of the wanted ones."""
    omitted = [w not in said for w in wanted]
    return omitted == sorted(omitted) and not omitted[0]


def _fits(word: str, left: str, right: str, pairs: list[tuple[str, str]], direction: bool) -> bool:
    """Whether an asked word may stand between two others as it does in the question."""
    if direction:
        return (word, right) in pairs
    turning = word in _known(_TURNING + _FOREIGN)
    if len(word) > 1 and not turning if word.isalpha() else len(word) > 3:
        return True
    around = {(left, word), (word, right or " "), ("much", word), ("many", word)}
    if word in _known(_FOREIGN):
        around |= {(word, left or " "), (right, word)}
    around |= {(right, word)} if right in _COPULAS else set()
    return not around.isdisjoint(pairs)


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
        if name.casefold() in "".join(word[0] for word in words if len(name) > 1 or word not in _EMPTY.split()):
            return True
    letters = " ?".join(map(re.escape, name.replace(" ", "")))
    return re.search(rf"(?<![\w+*/^|(<>=-])(?<![+*/^|<>=-] ){letters}(?![\w(]| ?[+*/^|<>=!'-])", text) is not None
