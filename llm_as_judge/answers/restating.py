"""Whether the words around a value only say what is asked: "Ben has [150] pages left to read."

Words such as "so the answer is" do not count. The others must be those of the asking clause, in its order and without
case and endings: "how many A B C" is stated as "B [value] A C" or "A B C is [value]", and A, the noun of the question
word, may be left out. Anything else is left to the LLM judge.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llm_as_judge.answers.notation import clean, number

_LONGEST = 8000  # characters of a question
_LONGEST_LEAD = 600
_SENTENCE = re.compile(r"(?<=[.?!])(?<!\d!)(?<! [A-Z]\.)\s+|\n")
_QUESTION_WORD = re.compile(  # not the "when" of "When Ann is 9, how old is Ben?"
    r"\b(?:what|how|which|who|whose|whom|why|(?:when|where)\b(?!.*, (?:what|how|which|who)\b))\b", re.IGNORECASE
)
_TASK_WORD = re.compile(
    r"\b(?:find|compute|evaluate|determine|calculate|simplify|solve|express|write|enter|give|list|name|factor|expand|convert"
    r"|rationalize|complete|order|put)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}|\\(?:text\w*|math\w+|left|right|q?quad|implies|[A-Za-z]*rightarrow)(?![A-Za-z])"
    r"|\\[()\[\] ,;!]|[${}*`]"
)
#: The sides of a formula whose last side is the value.
_SIDES = re.compile(
    r"(?:\\[A-Za-z]+|(?<=[A-Za-z]),(?= ?[A-Za-z][,)])|(?<![A-Za-z\\])(?:[A-Za-z]|[A-Z]{2,3})(?![A-Za-z])"
    r"|(?<=\d)[.,](?=\d)|[^A-Za-z\\<>≤≥≠≈±∈.,;:?])*=[\s$({\[\\]*\Z"
)
_WORKED = re.compile(
    r"\b(?:we|i) (?:get|find|have|obtain|conclude|see|know)\b|\b(?:values?|measure|solutions?|result) of\b"
    r"|(?:which|this|that|it) gives(?: us)?\b|(?:simplifies|evaluates|reduces|comes) to\b|\bnumber of(?= \w+ing\b)",
    re.IGNORECASE,
)
_ENDINGS = (("'s", ""), ("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_Words = tuple[str, ...]


def _stem(word: str) -> str:
    """Write a word in lower case without its ending, a small number in digits; anything else as it is."""
    if len(word) < 2 or not word.replace("'", "").isalpha():
        return word
    word = stem = word.casefold()
    if word == "has":
        return "hav"
    if (value := number(word)) is not None:
        return str(value)
    for ending, new in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            stem = word.removesuffix(ending) + new
            break
    stem = stem.removesuffix("e") if len(stem) > 3 else stem
    return word if stem == "not" else stem  # notes


@lru_cache(maxsize=256)
def stems(text: str) -> _Words:
    """Return the words and formulas of ``text`` without markup, case and endings."""
    text = _WORKED.sub(" ", _MARKUP.sub(" ", text.replace("\u2019", "'")))
    text = re.sub(r"\s*([+*/^=<>×÷·\u2212]|-(?= )|(?<=\S)-)\s*", r"\1", re.sub(r"(?<=\w)-(?=[A-Za-z]{2})", " ", text))
    text = re.sub(r"\b(\w+)n't\b", r"\1 not", re.sub(r"(?i)\b(it|that|there)'s\b", r"\1 is", text))
    words = (word.strip(".,;:!?()[]\"'\u201c\u201d") for word in text.split())
    return tuple(_stem(word) for word in words if any(map(str.isalnum, word)))


def words(text: str) -> frozenset[str]:
    return frozenset(stems(text))


_PAST, _PRESENT = words("was were"), words("is are")
_AUXILIARIES = _PAST | _PRESENT | words("do does did have had will would must should can could may might")
_PLACES, _LINKS = words("in on at for"), words("so thus therefore hence and")
_ASKING = words("what how which who whose whom why when where")
#: Words that make no difference to what is said.
_EMPTY = (
    _PAST
    | _PRESENT
    | words(
        """
    so thus therefore hence and this that there the a an be been final correct answer solution solutions result my our
    value values required desired finally expression equals do does did what how which who whose whom many much
    """
    )
)
#: Words for what may be asked, if there is no question to compare with.
_QUANTITIES = words(
    """
    it to for as by sum product area volume length distance probability domain range function points roots integer
    integers real positive distinct maximum minimum least greatest smallest largest angle triangle trapezoid
    quadratic matrix pair has get find have obtain conclude such checking total is only possible
    """
)
#: Conditions, and words for answers of somebody else.
_FOREIGN = words(
    "unless if suppose assume were might may could would should can must says said say thinks think thought believes "
    "claims claimed guess guessed wrong incorrect incorrectly false mistake mistaken not"
)


@lru_cache(maxsize=64)
def asked(question: str) -> str:
    """Find the clauses that ask, each from question word or verb to the end of its sentence; all without such words."""
    return "\n".join(clause for _, clause in _asking(question)) or question[-_LONGEST:]


def _asking(question: str) -> Iterator[tuple[str, str]]:
    """Yield the clauses that ask, each with what stands before it in its sentence."""
    sentences = _SENTENCE.split(question[-_LONGEST:])
    task = _TASK_WORD.match if "?" in question else _TASK_WORD.search
    word = _QUESTION_WORD.search
    found = [word(s) or _TASK_WORD.search(s) if s.rstrip().endswith("?") else task(s) for s in sentences]
    for each in filter(None, found if any(found) else map(word, sentences)):
        yield each.string[: each.start()], each.string[each.start() :]


@dataclass(frozen=True, slots=True)
class _Clause:
    """An asking clause without empty words."""

    noun: _Words  # of the question word, as in "how many pens"
    rest: _Words
    auxiliary: str
    preposition: str  # before the question word


@lru_cache(maxsize=64)
def _clauses(question: str) -> tuple[_Clause, ...]:
    """Return the asking clauses of a question, or the question itself if it asks for yes or no."""
    found = [*_asking(question)]
    if not found:  # "Are both American?"
        found = [("", text) for text in _SENTENCE.split(question[-_LONGEST:]) if text.endswith("?")]
    return tuple(_clause(before, text) for before, text in found)


def _clause(before: str, text: str) -> _Clause:
    found, opening = stems(text), stems(before.rpartition(",")[2])
    start = next((i for i, stem in enumerate(found) if stem in _AUXILIARIES), None)
    auxiliary, task = "" if start is None else found[start], _TASK_WORD.match(text) is not None
    if start is not None and not task:
        size, skipped = start, auxiliary not in ("hav", "had")
    elif len(opening) > 1 and not task:  # released in which year
        size, skipped = len(found), False
    else:  # which team won it
        size, skipped = (1 + (found[:1] in (("which",), ("what",))), False)
    noun, rest = found[task:size], found[size + skipped :]
    preposition = opening[0] if len(opening) == 1 else ""
    rest = rest if preposition or task else opening + rest
    if "did" in found:
        rest = tuple("had" if stem == "hav" else stem for stem in rest)
    return _Clause(_told(noun), _told(rest), auxiliary, preposition)


def _told(stems: _Words) -> _Words:
    return tuple(stem for stem in stems if stem not in _EMPTY)


def doubtful(text: str) -> bool:
    """Tell whether ``text`` sets a condition or speaks of somebody else's answer."""
    return not _FOREIGN.isdisjoint(stems(text))


def _asks(lead: _Words) -> bool:
    """Tell whether the words before a value ask: a question word or a verb comes first or after the verb "to be"."""
    said = [stem for stem in lead if stem not in _LINKS]
    after = zip(("is", *said), said, strict=False)
    return any(word in _ASKING | _AUXILIARIES and before in _PAST | _PRESENT for before, word in after)


def restates(lead: str, question: str, tail: str = "") -> bool:
    """Tell whether ``lead`` and ``tail``, before and after a value, say only that it is what is asked."""
    if "?" in lead + tail or lead.casefold().startswith("to ") or len(lead + tail) > _LONGEST_LEAD:
        return False
    lead = clean(lead)
    if lead.rstrip(" $({[\\")[-1:] in tuple("<>≤≥≠≈±~"):
        return False
    if formula := _SIDES.search(lead):
        sides = formula.group().rpartition("=")[0].split("=")
        if sides[-1].rstrip()[-1:] in tuple("+-*/^:") or (question and not _may_equal(sides[0], question)):
            return False
        lead = lead[: formula.start()]
    before, after = stems(lead), stems(tail)
    if _asks(before):
        return False
    if not question:
        known = _EMPTY | _QUANTITIES
        return all(w in known or not re.search(r"[^\W\d_]{2}", re.sub(r"\\[A-Za-z]+", "", w)) for w in before + after)
    if (_told(before), _told(after)) in (((), ()), (("it",), ())):
        return True
    tenses = {stem in _PAST for stem in before + after if stem in _PAST | _PRESENT}
    return any(
        _states(_told(before), _told(after), clause)
        for clause in _clauses(question)
        if clause.auxiliary not in _PAST | _PRESENT or tenses <= {clause.auxiliary in _PAST}
    )


def _states(lead: _Words, tail: _Words, clause: _Clause) -> bool:
    """Tell whether ``lead`` and ``tail`` are the words of ``clause`` around its value."""
    noun, rest = clause.noun, clause.rest
    if clause.preposition == "by" and lead[-1:] != ("by",):
        return False
    placed = len(lead) > 0 and lead[-1] in _PLACES | {clause.preposition}
    lead = lead[2:] if lead[:2] == ("number", "of") and clause.noun else lead
    for said in {lead, lead[:-1] if placed else lead}:
        if (not tail and said in (noun, noun + rest)) or (not said and tail in ((), noun)):
            return True
        shown = (noun, ()) if tail[:1] != ("of",) else (noun,)  # 25 of the eggs, if asked what percentage of them
        if any(said == rest[:i] and tail == n + rest[i:] for i in range(len(rest) + 1) for n in shown):
            return True
    return False


def unknowns(question: str) -> set[str]:
    """Return the letters that stand alone in a question, as ``x`` in "Find all x with x^2 = 4"."""
    letter = r"(?i)(?<![a-z\\'\u2019])[a-z](?![a-z'\u2019])(?<!(?-i:[aAI])(?= [a-z]))"
    return {*re.findall(letter, question[-_LONGEST:])}


def _may_equal(name: str, question: str) -> bool:
    """Tell whether ``name`` is asked for or has none of the question's letters."""
    said, given = (unknowns(text).union(*re.findall(r"\b[A-Z]{2,4}\b", text)) for text in (name, question))
    return said.isdisjoint(given) or is_asked(name.strip(" $&"), question)


def is_asked(name: str, question: str) -> bool:
    """Tell whether the question asks for ``name`` itself, as for ``a + b`` in "What is a + b?"."""
    name, text = (re.sub(r"[${}\s]|\\[()]", "", clean(part)) for part in (name, asked(question).replace("\n", ". ")))
    start = r"(?:^|\.)(?:what(?:is|are)|find|compute|determine|solvefor)(?:the(?:valueof|measureof)|all)?"
    return re.search(rf"(?i:{start}){re.escape(name)}(?:[.?,:]|\Z|when|if|with|such|in)", text) is not None
