"""Whether a sentence is the question's own statement with the value filled in: "Ben has 150 pages left to read."

The sentence must be the asking clause as a statement: the same words, without case and endings, in the same order, with
the value in place of the question word. The end of the clause may be left out from a preposition or conjunction on, or
come first; the subject may be a pronoun. Sentences that say less or more than that are left to the LLM judge.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, takewhile

from llm_as_judge.answers.asked import asked, is_asked, unknowns
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import UNITS, split_unit, unit_named

#: Past tenses that no ending makes.
_PASTS = dict(
    pair.split("/")
    for pair in """
    took/take made/make sold/sell spent/spend won/win ate/eat got/get gave/give bought/buy paid/pay ran/run wrote/write
    began/begin lost/lose drove/drive used/use died/die became/become built/build broke/break brought/bring kept/keep
    has/have had/have fell/fall children/child feet/foot sent/send sank/sink went/go came/come knew/know grew/grow
    threw/throw flew/fly drew/draw met/meet held/hold stood/stand told/tell led/lead rode/ride rose/rise spoke/speak
    chose/choose taught/teach caught/catch fought/fight sang/sing swam/swim slept/sleep wore/wear hid/hide fed/feed
    drank/drink
    """.split()
)
_ENDINGS = (("'s", ""), ("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_MARKUP = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}|\\(?:text\w*|math\w+|left|right|q?quad)(?![A-Za-z])|\\[()\[\] ,;!]|[${}*`]"
)
_FORMULA = re.compile(r"(?:\$\$?|\\[(\[])((?:[^$=]|\\\$)*)=[^$]*\Z")  # whose last side is the value
_CALCULATION = re.compile(r"(?:[^A-Za-z\\]|\\[a-z]*)*=[\s$\\(]*")
_ASIDE = re.compile(r", (?:\w+ )?(?:which|who|whose|where)\b[^,?]*,|\((?=[^()]*[a-z]{3})[^()]*\)")
_IN_UNIT = re.compile(r"\bin ((?!second)(?:square |cubic )?[A-Za-z/]+(?: per [a-z]+)?)")
_SECOND = re.compile(r"\band (?:in )?(?:what|how|which|when|where)\b", re.IGNORECASE)
_WORKED = re.compile(
    r"\b(?:we|i) (?:get|find|have|obtain|conclude|see|know)\b"
    r"|(?:simplifies|evaluates|reduces|comes) to\b|\A\s*An? (?=\d|(?!and |or )[a-z]{2})",
    re.IGNORECASE,
)


def _stem(word: str) -> str:
    """A word in lower case without its ending, a small number in digits; anything else as it is."""
    if len(word) < 2 or not word.replace("'", "").isalpha():
        return word
    word = _PASTS.get(word.casefold(), word.casefold())
    if (value := number(word)) is not None:
        return str(value)
    for ending, new in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending) + new
            break
    return word.removesuffix("e") if len(word) > 3 else word


@lru_cache(maxsize=256)
def _stems(text: str) -> tuple[str, ...]:
    """The words and formulas of ``text`` without markup, case and endings."""
    text = _MARKUP.sub(" ", text.replace("\u2019", "'").replace("\\angle", "angle "))
    text = re.sub(r"\s*([+*/^=<>×÷·\u2212]|-(?= )|(?<=\S)-)\s*", r"\1", re.sub(r"(?<=\w)-(?=[A-Za-z]{2})", " ", text))
    text = re.sub(r"(?<=\d),\s+(?=[-\d])", ",", _IN_UNIT.sub(_without_unit, text))
    text = re.sub(r"\b(\w+)n't\b", r"\1 not", _WORKED.sub(" ", text))
    words = (word.strip(".,;:!?()[]\"'\u201c\u201d") for word in re.sub(r"\b[Tt]he\b", " ", text).split())
    return tuple(re.sub("(?:al)?together", "total", _stem(word)) for word in words if any(map(str.isalnum, word)))


def _without_unit(found: re.Match[str]) -> str:
    return " " if unit_named(found.group(1)) else found.group()


def _words(text: str) -> frozenset[str]:
    return frozenset(_stems(text))


_PAST = _words("was were")
_BEING = _PAST | _words("is are")
_DOING = _words("do does did")
_MODALS = _words("will would should must can could may might have")
_WH = _words("what how which who whose whom when where why")
_TASKS = _words("find evaluate determine calculate simplify solve compute express list name write give")
_SINGULAR, _PLURAL = _words("it he she his her its"), _words("it they both their")
_PRONOUNS = _SINGULAR | _PLURAL
_WHOLE = _words("total all both")
_NOW = _words("now currently")
_NOT_NOW = _PAST | {"did"}
_SHARES = _words("each every per apiece")
_COMPARING = _words("more less fewer additional extra than longer shorter not other")
#: Words before which a clause may end: what follows says how or when.
_LIMITS = _words(
    "of in on at to by for with from if when before after during that who which where than over as since until between "
    "among through under last next"
)
_FILLERS = _words(
    """
    so thus therefore hence and this that there my our a an be been final correct answer solution solutions result
    value values required desired of in on at number finally measure expression equals gives
    his her their him them its many much we only possible particular
    """
)
#: Words that make no difference to what is said.
_EMPTY = _FILLERS | _BEING | _DOING | _WH | _NOW
_UNNAMED = _EMPTY | _TASKS | _WHOLE
#: Quantities and links, which may stand before an answer if it is not known what was asked.
_QUANTITIES = _words(
    """
    it to for as by sum product area volume length distance probability domain range function points roots integer
    integers real positive distinct maximum minimum least greatest smallest largest angle triangle trapezoid
    quadratic matrix pair has get find have obtain conclude such checking
    """
)
#: Conditions, and words for answers of somebody else.
_FOREIGN = _words(
    """
    unless if suppose assume were might may could would should can must says said say thinks think thought believes
    claims claimed guess guessed wrong incorrect incorrectly false mistake mistaken
    """
)
_UNITS = frozenset(map(_stem, UNITS)) - {"second"}
_LONGEST = 40  # words of a clause


@dataclass(frozen=True, slots=True)
class _Clause:
    """An asking clause without empty words. Nothing can be said about one that asks two things."""

    noun: tuple[str, ...] = ()  # of the question word, as in "how many pens"
    head: tuple[str, ...] = ()  # of that noun, before "of"
    auxiliary: str = ""  # after it
    preposition: str = ""  # before the question word
    stems: frozenset[str] = frozenset()  # all words
    statements: frozenset[tuple[str, ...]] = frozenset()  # what may be said, without noun and value


@lru_cache(maxsize=64)
def _clauses(question: str, by_fact: bool) -> tuple[_Clause, ...]:
    return tuple(_clause(text, question, by_fact) for text in asked(question).split("\n"))


def _clause(text: str, question: str, by_fact: bool) -> _Clause:
    opening = re.split(r"[.?!\n\]]", question[: max(0, question.find(text))])[-1]
    text = _ASIDE.sub(" ", text)
    if _SECOND.search(text):
        return _Clause()
    stems = _stems(text)[:_LONGEST]
    start = -1 if stems[:1] and stems[0] in _TASKS else next((i for i, stem in enumerate(stems) if stem in _WH), -1)
    first = stems[: max(start, 0)]  # "It fell in which year?"
    if start >= 0 and "," not in opening and not doubtful(opening):
        first = _stems(opening)[-_LONGEST:] + first
    stop = _BEING | _DOING | _MODALS | (_LIMITS if first else frozenset())
    noun = tuple(takewhile(lambda stem: stem not in stop, stems[start + 1 :])) if start >= 0 else ()
    rest, auxiliary, preposition = stems[start + 1 + len(noun) :], "", ""
    if first and first[-1] in _LIMITS:
        first, preposition = first[:-1], first[-1]
    if not first and rest and rest[0] in stop:
        auxiliary, rest = rest[0], rest[1:]
    elif not first and not rest:  # "how many people own a pet"
        noun, rest = (), noun
    names, limit, last = _names(text), False, ""
    words: list[str] = []
    ends, relative = set(), []
    for place, stem in enumerate(first + rest):
        if stem not in _UNNAMED:
            limit |= stem in _LIMITS or len(stem) == 1 or not stem.isalpha() or (last == "and" and stem not in names)
            if limit and place >= len(first) and not (words and words[-1] in _LIMITS):
                ends.add(len(words))
            words.append(stem)
            limit = False
        limit |= stem in _LIMITS & _EMPTY
        relative += [len(words) - 1] if stem in ("that", "which", "who") and words else []
        last = stem
    if noun == ("many",) and (counted := re.search(r"\d+ (.*)", opening)):  # If Ann has 6 pens, how many ...
        noun = tuple(takewhile(lambda stem: stem not in _EMPTY | _LIMITS, _stems(counted.group(1))))
    noun, head = (tuple(s for s in part if s not in _UNNAMED) for part in (noun, takewhile(lambda s: s != "of", noun)))
    if not noun and "many" in stems and "of" not in stems:  # 60 tulips, if asked how many tulips remain
        head = tuple(words[:1])
    statements = {*_statements(tuple(words), {*ends, len(words)}, names, _names(question), by_fact)}
    if by_fact and not auxiliary:  # "a band that fell in which year?", "Which team won it?" without the noun
        statements |= {tuple(words[start:]) for start in (relative if first else range(min(4, len(words))))}
    return _Clause(noun, head, auxiliary, preposition, frozenset(stems), frozenset(statements - {()}))


def _statements(
    words: tuple[str, ...], ends: set[int], names: frozenset[str], people: frozenset[str], by_fact: bool
) -> Iterator[tuple[str, ...]]:
    """``words`` up to one of ``ends``, what follows an end first, or with another subject."""
    first = min((end for end in ends if words[end : end + 1] and words[end] not in names), default=len(words))
    others = people.difference(words)
    for end in ends:
        yield from (words[end:last] + words[:end] for last in ends)
        if words[:1] and words[0] in _PRONOUNS:
            if len(others) < 4 and (len(others) > 1) == (words[0] == "they"):
                yield from (subject + words[1:end] for subject in permutations(others))
            continue
        for size in range(0 if by_fact else 1, first + 1):
            known = len(names.intersection(words[:size]))
            pronouns = _PRONOUNS if by_fact or not known else _SINGULAR if known == 1 else _PLURAL
            pronouns = pronouns - {"he", "she", "his", "her"} if others and not by_fact else pronouns
            if size == end or (size < end and size not in ends):
                yield from ((pronoun, *words[size:end]) for pronoun in pronouns)


def _names(text: str) -> frozenset[str]:
    found, others = (_words(" ".join(re.findall(rf"\b[{first}][a-z]+", text))) for first in ("A-Z", "a-z"))
    return found - others - _UNNAMED - _LIMITS - _PRONOUNS - _FOREIGN - _SHARES


def doubtful(text: str) -> bool:
    """Whether ``text`` sets a condition or speaks of somebody else's answer."""
    return not _FOREIGN.isdisjoint(_stems(text))


def restates(lead: str, question: str, value: str = "", tail: str = "", *, by_fact: bool = False) -> bool:
    """Whether ``lead``, ``value`` and ``tail`` say about ``value`` only what the ``question`` asks.

    ``by_fact``: the value could hardly be another fact's, so a pronoun may stand for any subject.
    """
    if "?" in lead + tail or lead.casefold().startswith("to "):
        return False
    lead = "" if _CALCULATION.fullmatch(lead) else lead
    if formula := _FORMULA.search(lead):
        name = formula.group(1).strip()
        lead = lead[: formula.start()] + (f" {name}=" if name in unknowns(question) else "")
    before, after = _stems(lead), _stems(tail)
    if not question:
        known = _EMPTY | _QUANTITIES
        return all(w in known or not re.search(r"[^\W\d_]{2}", w) or w[0] == "\\" for w in before + after)
    while before and ("=" in before[-1] or before[-1].startswith("\\")):
        name = before[-1].rstrip("=")
        if name in unknowns(question) and not is_asked(name, question):
            return False
        before = before[:-1]
    said = clean(value)
    measured = said[:1] in ("$", "€", "£", "¥") or split_unit(said) is not None
    return any(_states(before, after, clause, measured, by_fact) for clause in _clauses(question, by_fact))


def _states(before: tuple[str, ...], after: tuple[str, ...], clause: _Clause, measured: bool, by_fact: bool) -> bool:
    whole = _WHOLE if _SHARES.isdisjoint(clause.stems) or not _WHOLE.isdisjoint(clause.stems) else frozenset[str]()
    empty = (_EMPTY | _TASKS | whole) - (_NOW if clause.auxiliary in _NOT_NOW else frozenset())
    pronouns = _PRONOUNS - (_EMPTY & clause.stems)
    lead = tuple(s for s in before if s not in empty or (s == before[0] and s in pronouns))
    tail = tuple(s for s in after if s not in empty - {"number"} or (s == after[0] == "both"))
    if lead[-1:] in (("for",), (clause.preposition,)):  # for 6 hours
        lead = lead[:-1]
    if before[-1:] in (("in",), ("for",)) and not by_fact and not (lead and clause.stems & {"many", "long"}):
        return False
    if after[:1] == ("of",) and "of" not in clause.stems:
        return False  # 6 of the pens
    noun, head = (tuple(s for s in part if not (measured and s in _UNITS)) for part in (clause.noun, clause.head))
    if (
        whole
        and noun
        and noun in (lead, tail)
        and _WHOLE.isdisjoint(clause.stems)
        and not _WHOLE.isdisjoint(before + after)
    ):
        return False  # of "how many are left", all
    if (not tail and lead in ((), noun, ("it",))) or (not lead and tail in (noun, head)):
        return True
    if not lead and (tail == noun[-len(tail) :] if by_fact else "many" in clause.stems and tail in clause.statements):
        return True
    passive = any(stem in _BEING for stem in (*before[:-1], *after))
    if clause.auxiliary in _DOING and passive and _BEING.isdisjoint(clause.stems):
        return False  # who did it and to whom
    verbs = _BEING.intersection(before + after)
    if (
        "old" in clause.noun
        and clause.auxiliary in _BEING
        and verbs
        and (clause.auxiliary in _PAST) == verbs.isdisjoint(_PAST)
    ):
        return False  # another age
    linked = passive or not _BEING.isdisjoint(before[-1:]) or (not clause.noun and "what" in clause.stems)
    if clause.auxiliary in _BEING and not linked:
        return False
    if clause.auxiliary in _MODALS:
        if clause.auxiliary not in lead + tail:
            return False
        lead, tail = (tuple(s for s in part if s != clause.auxiliary) for part in (lead, tail))
    shorter = [head, (), *(noun[i:] for i in range(1, len(noun)) if by_fact or after[:1] == ("of",))]  # 1/8 of 2 feet
    for shown in [noun, *(shorter if _COMPARING.isdisjoint(noun + ("than",) * ("than" in clause.stems)) else ())]:
        if tail[: len(shown)] == shown and lead + tail[len(shown) :] in clause.statements:
            return True
    return not tail and lead[: len(noun)] == noun and lead[len(noun) :] in clause.statements  # number of pens left
