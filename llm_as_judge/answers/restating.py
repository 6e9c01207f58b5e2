"""Whether a sentence says about a value only what the question asks: "Ben has 150 pages left to read."

Words are compared without case and endings. Every word must be empty, as in "Therefore, the answer is", or one of the
asking clause, in its order. A word that may turn the meaning, a letter and a number must also have the same neighbour.
A sentence about another quantity has other words, leaves out the first ones or has no word of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile

from llm_as_judge.answers.asked import asked, is_asked, unknowns
from llm_as_judge.answers.notation import clean
from llm_as_judge.answers.units import UNITS, split_unit

#: Past tenses that no ending makes.
_PASTS = dict(
    pair.split("/")
    for pair in """
    took/take made/make sold/sell spent/spend won/win ate/eat got/get gave/give bought/buy paid/pay ran/run wrote/write
    began/begin lost/lose drove/drive used/use died/die became/become built/build broke/break brought/bring kept/keep
    """.split()
)
_ENDINGS = (("'s", ""), ("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_MARKUP = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}|\\(?:text\w*|math\w+|left|right|q?quad)(?![A-Za-z])|\\[()\[\] ,;!]|[${}*`]"
)
_FORMULA = re.compile(r"(?:\$\$?|\\[(\[])((?:[^$=]|\\\$)*)=[^$]*\Z")  # whose last side is the value
_CAPITALISED = re.compile(r"\b[A-Z][a-z]+")


def _stem(word: str) -> str:
    """A word in lower case without its ending; anything else as it is."""
    if len(word) < 2 or not word.replace("'", "").isalpha():
        return word
    word = _PASTS.get(word.casefold(), word.casefold())
    for ending, new in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending) + new
            break
    return word.removesuffix("e") if len(word) > 3 else word


@lru_cache(maxsize=256)
def _stems(text: str) -> tuple[str, ...]:
    """The words and formulas of ``text`` without markup, case and endings."""
    text = _MARKUP.sub(" ", text.replace("\u2019", "'").replace("\\angle", "angle "))
    text = re.sub(r"\s*([-+*/^=<>])\s*", r"\1", re.sub(r"(?<=\w)-(?=[A-Za-z]{2})", " ", text))
    words = (word.strip(".,;:!?()[]\"'\u201c\u201d") for word in re.sub(r"\b[Tt]he\b", " ", text).split())
    return tuple(re.sub("(?:al)?together", "total", _stem(word)) for word in words if any(map(str.isalnum, word)))


def _words(text: str) -> frozenset[str]:
    return frozenset(_stems(text))


#: Words that may stand around an answer.
_EMPTY = _words(
    """
    so thus therefore hence and we this that it it's its there the our my is are was be equals get find have obtain
    gives a an final correct answer solution solutions result value values required desired as for of in on at to which
    number conclude finally particular checking such has by measure expression
    """
)
#: Conditions, and words for answers of somebody else.
_FOREIGN = _words(
    """
    unless if suppose assume were might may could would should can must says said say thinks think thought believes
    claims claimed guess guessed wrong incorrect incorrectly false mistake mistaken
    """
)
#: Other words that may turn, limit or hedge what is stated.
_TURNING = _FOREIGN | _words(
    """
    not no never none neither nor cannot except without when where or either than less more minus plus half twice double
    third quarter instead about approximately almost nearly roughly between other another first before per each every
    only
    """
)
#: Words of a question that name nothing.
_ASKING = _words(
    """
    what how many much which who whose whom when where why were evaluate determine calculate simplify solve express
    compute write give list name do does did will your between he she they them his her their
    """
)
#: Quantities, which may stand before an answer if it is not known what was asked.
_QUANTITIES = _words(
    """
    sum product area volume length distance probability domain range function points roots integer integers real
    positive only distinct possible maximum minimum least greatest smallest largest angle triangle trapezoid quadratic
    matrix pair
    """
)
_UNITS = frozenset(map(_stem, UNITS)) - {"second"}
_PRONOUNS = _words("he she they them his her their")
_SUBJECTS = _words("he she they")
_STANDING_FOR = _PRONOUNS | {"it", "both"}  # all that is asked about a fact
_SHARES = _words("each every per")
_COPULAS = _words("is are was do does did there")
_BEING = _words("is are was were")
_AROUND_FACTS = _STANDING_FOR | _words("is are was were of in on at")
_BEFORE_CONDITIONS = ("at", "for", "in", "on", "of", "by", "to")
_DIRECTIONS = _words("by to for as and")  # they tell who does what


@dataclass(frozen=True, slots=True)
class _Clause:
    """The asking clause: its words, neighbours, and those that name what is wanted; the words that are given."""

    words: tuple[str, ...]
    pairs: frozenset[tuple[str, str]]
    wanted: tuple[str, ...]
    counted: tuple[str, ...]  # what "how many" counts
    given: frozenset[str]
    kind: tuple[str, ...]  # what "what" and "which" ask for
    people: frozenset[str]  # whom a pronoun may stand for
    joined: frozenset[str]  # those of them with "and" between them

    def fits(self, word: str, left: str, right: str, *, direction: bool) -> bool:
        """Whether an asked word may stand between these two."""
        if direction or word == "than":
            return (word, right) in self.pairs
        if len(word) > 1 and word not in _TURNING if word.isalpha() else len(word) > 3:
            return True
        around = {(left, word), (word, right or None), ("much", word), ("many", word)}
        if word in _FOREIGN:  # should they, they should
            around |= {(word, left or None), (right, word)}
        around |= {(right, word)} if right in _COPULAS else set()
        return not around.isdisjoint(self.pairs)

    def stands(self, subject: str) -> bool:
        """Whether a pronoun or name is certainly the one that is asked about."""
        pronoun = _SUBJECTS.intersection(self.words)
        if subject == "they" or "they" in pronoun:
            return subject in pronoun or (not pronoun and "and" in self.words)
        one = self.people if pronoun else _PRONOUNS
        return subject in pronoun or (len(self.people) == 1 and subject in one)

    def in_order(self, words: Iterable[str]) -> bool:
        rest = iter(self.words)
        moved = _TURNING | {*self.counted, "total", "will"}
        return all(w in rest for w in words if w not in moved and ("how", w) not in self.pairs)


@lru_cache(maxsize=64)
def _clause(question: str) -> _Clause:
    words = _stems(asked(question))
    pairs = frozenset(zip(words, (*words[1:], ""), strict=False))
    ends = (i for i, w in enumerate(words) if i and (w == "if" or words[i : i + 2] == ("expres", "your")))
    main = words[: next(ends, None)]
    unsaid = _EMPTY | _ASKING | {w for before, w in pairs if before == "how" or (before == "in" and w in _UNITS)}
    wanted = [w for w in main if w.isalpha() and len(w) > 1 and w not in unsaid]
    counted: list[str] = []
    for i, pair in enumerate(pairwise(words)):
        if pair in (("how", "much"), ("how", "many"), ("number", "of")):
            counted += takewhile(lambda w: w not in _COPULAS and w != "wer", words[i + 2 : i + 8])
    given = frozenset(Counter(_stems(question)) - Counter(words))
    kind = words[next((i + 1 for i, w in enumerate(words) if w in ("what", "which")), len(words)) :][:8]
    verb = next((i for i, w in enumerate(kind) if w in _COPULAS), 1)
    named = _words(" ".join(_CAPITALISED.findall(question))) - _EMPTY - _ASKING - _TURNING
    people = named if _SUBJECTS.intersection(words) else named.intersection(words)
    joined = {
        name
        for i, pair in enumerate(pairwise(words))
        if pair[0] == "and" and pair[1] in people
        for name in (pair[1], *takewhile(people.__contains__, reversed(words[:i])))
    }
    return _Clause(
        words, pairs, tuple(dict.fromkeys(wanted)), tuple(counted), given, kind[:verb], people, frozenset(joined)
    )


def doubtful(text: str) -> bool:
    """Whether ``text`` sets a condition or speaks of somebody else's answer."""
    return not _FOREIGN.isdisjoint(_stems(text))


def restates(lead: str, question: str, value: str = "", tail: str = "", *, by_fact: bool = False) -> bool:
    """Whether ``lead``, ``value`` and ``tail`` say about ``value`` only what the ``question`` asks.

    The subject may be a pronoun or name only if it is certainly the one asked about. Of the words that name what is
    wanted, all must be said; or the first ones, if something not given is said as well or all the rest is given.
    A value that could hardly be another fact's (``by_fact``) needs only the first, or a pronoun for it.
    """
    if "?" in lead + tail or lead.casefold().startswith("to "):
        return False
    if formula := _FORMULA.search(lead):
        name = formula.group(1).strip()
        lead = lead[: formula.start()] + (f" {name}=" if name in unknowns(question) else "")
    before, after = _stems(lead), _stems(tail)
    if not question:
        known = _EMPTY | _QUANTITIES
        return all(w in known or not re.search(r"[^\W\d_]{2}", w) or w[0] == "\\" for w in before + after)
    clause = _clause(question)
    found = _named((*before, "", *after), len(before), clause, question, by_fact=by_fact)
    if found is None:
        return False
    named, subject = found
    if not named:
        return _AROUND_FACTS.issuperset(before + after) if by_fact else not subject
    if before[-1:] != ("by",) and not all(clause.in_order(w for w in part if w in named) for part in (before, after)):
        return False
    if not clause.joined.isdisjoint(named) and not clause.joined.issubset(named):
        return False  # of "Ann and Bob", only Ann
    bare = not any(w in named for w in before)
    if bare and not (by_fact or subject) and after and after in (clause.counted, clause.counted[:1]):
        return True  # 6 legs
    said = {*named, *_stems(value)}
    if clean(value)[:1] in ("$", "€", "£", "¥") or split_unit(clean(value)):  # a unit tells what is counted
        said |= _UNITS if "than" in clause.words else {*clause.counted} - _TURNING | _UNITS
    if subject and not by_fact:
        if not clause.stands(subject):
            return False
        subject = ""
        said |= clause.people
    elif len(clause.people) == 1 and not _SUBJECTS.isdisjoint(named):
        said |= clause.people
    if said.issuperset(clause.wanted):
        return True
    if by_fact:
        wanted = [w for w in clause.wanted if w not in clause.kind and ("many", w) not in clause.pairs]
        second = re.search(r"\band (?:in )?(?:what|how|which|who|when|where)\b", question, re.IGNORECASE)
        told = subject in _STANDING_FOR if subject else not said.intersection(wanted) or _begin(wanted, said)
        return told and not second
    if "such" in before + after:
        return not said.isdisjoint(clause.counted)
    sure = not clause.given.issuperset({*named} - _PRONOUNS) or clause.given.issuperset({*clause.wanted} - said)
    return not subject and sure and _begin(clause.wanted, said)


def _named(
    words: Sequence[str], place: int, clause: _Clause, question: str, *, by_fact: bool
) -> tuple[list[str], str] | None:
    """The asked words among ``words``, and the subject if it is another one; None if a word is not expected.

    The value stands at ``place``.
    """
    named: list[str] = []
    subject = ""
    for i, word in enumerate(words):
        left, right = words[i - 1] if i else "", (*words, "")[i + 1]
        direction = by_fact and word in _DIRECTIONS
        past = word in ("had", "wer") and not {word, "was", "did"}.isdisjoint(clause.words)
        if word in _BEING and right and "did" in clause.words and _BEING.isdisjoint(clause.words):
            return None  # who did it and to whom
        if not word or ((word in _COPULAS or past) and i) or (word == "A" and not i and not by_fact):
            continue
        if by_fact and word in _STANDING_FOR:
            subject = subject or word
        elif word not in clause.words and ("=" in word or word.startswith("\\")):
            asked_name = word[:-1] not in unknowns(question) or is_asked(word[:-1], question)
            if by_fact or left in _BEFORE_CONDITIONS or not asked_name:
                return None
        elif word in _EMPTY and not direction and not (word == "number" and i > place):
            continue
        elif (word == "total" and _SHARES.isdisjoint(clause.words)) or (
            word in clause.words and clause.fits(word, left, right, direction=direction)
        ):
            named += [word] if word in clause.words else []
        elif i < place and not (named or subject) and word in (clause.given | _PRONOUNS) - _TURNING:
            if right == "and" or not word.isalpha():
                return None
            subject = word
        else:
            return None
    return named, subject


def _begin(wanted: Sequence[str], said: set[str]) -> bool:
    """Whether the words that are said are the first of the wanted ones."""
    omitted = [w not in said for w in wanted]
    return omitted == sorted(omitted) and not omitted[0]
