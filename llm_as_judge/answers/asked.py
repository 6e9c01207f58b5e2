"""What a question asks for: its asking clauses, the names and the units it wants."""

import re
from functools import lru_cache

from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import UNITS, Unit, unit_named

_LONGEST = 8000
_SENTENCE = re.compile(r"(?<=[.?!])(?<!\d!)(?<! [A-Z]\.)\s+|\n")
_QUESTION_WORD = re.compile(  # not the "when" of "When Ann is 9, how old is Ben?"
    r"(?:\w+ed in )?\b(?:what|how|which|who|whose|whom|why|(?:when|where)\b(?!.*, (?:what|how|which|who)\b))\b",
    re.IGNORECASE,
)
_TASK_WORD = re.compile(
    r"\b(?:find|compute|evaluate|determine|calculate|simplify|solve|express|write|enter|give|list|name|factor|expand|convert"
    r"|rationalize|complete|order|put)\b",
    re.IGNORECASE,
)
_HEAD = 5  # words
#: What may stand between the asking word and the name that is asked for: "find the smallest positive integer n".
_LINK = (
    r"(?:is|are|was|must|does|the|an|all|each|every|both|of|for|values?|measure|length|segment|angle|sides?|real|complex"
    r"|possible|distinct|exact|only|positive|negative|whole|prime|larger|smaller|\w+est|least|and|ordered|[A-Za-z],?"
    r"|(?:integer|constant|number|matrix|vector|point|function|digit|pair|triple)s?(?! of))"
)
_PATH = rf"(?:(?:for )?(?:what|which)|[A-Za-z]+)(?: {_LINK})*? [(|]?"
_SOLVED = re.compile(rf"solve\b|{_PATH}(?:root|solution|zero|domain)s?\b", re.IGNORECASE)
#: Every unit by its longest name first, with the word before it.
_UNIT = re.compile(
    r"(?:(?<![\w.,])([\w.,]+)[\s-]+)?(?<![\w\\])((?:"
    + "|".join(re.escape(name) for name in sorted(UNITS, key=len, reverse=True) if len(name) > 1 or name in "$€£¥°%")
    + r")(?:(?: per |/)[A-Za-z]+)?)(?![A-Za-z_^])(\d?)",
    re.IGNORECASE,
)
_OF_ANOTHER = re.compile(r" (?:whose|which|if|when) ")
_UNKNOWN_UNIT = re.compile(r"\bin [a-z]+s\b")  # in acres
_ONE = frozenset("a an one each every per this last next first same".split())
#: Words of a question by the quantity that they ask for.
_DIMENSIONS = {
    "$": r"cost|price|pa(?:y|id)|earn|sp[ae]n[dt]|money|profit|worth|charge|total|much",
    "length": r"far|long|length|tall|height|wide|width|deep|depth|high|distance|radius|diameter|perimeter|side",
    "length/time": r"fast|speed|rate",
    "time": r"long|time|duration",
    "years": r"\bold\b|\bage\b|long",
    "mass": r"heavy|weigh|mass",
    "volume": r"volume|capacity|much",
    "space": r"volume|capacity",
    "area": r"area",
    "°": r"angle|degree|\\circ|°|\barc\b",
}
_MONEY = frozenset("$€£¥")


@lru_cache(maxsize=64)
def asked(question: str) -> str:
    """The clauses that ask, each from its question word or verb to the end of its sentence; all without such words."""
    sentences = _SENTENCE.split(question[-_LONGEST:])
    task = _TASK_WORD.match if "?" in question else _TASK_WORD.search
    word = _QUESTION_WORD.search
    found = [word(s) or _TASK_WORD.search(s) if s.rstrip().endswith("?") else task(s) for s in sentences]
    found = found if any(found) else [*map(word, sentences)]
    return "\n".join(each.string[each.start() :] for each in found if each) or question[-_LONGEST:]


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


def may_have(unit: Unit, question: str) -> bool:
    """Whether an answer may have this unit: the one that the question wants, or the only one that fits its words."""
    clause, everywhere = _OF_ANOTHER.split(asked(question))[0], units(question)
    if unit.quantity == "%":
        return unit in everywhere
    if wanted := units(clause, wanted=True):
        return (unit.quantity, unit.size) in ((found.quantity, found.size) for found in wanted)
    head = " ".join(" ".join(line.split()[:_HEAD]) for line in asked(question).split("\n"))
    fitting = {name for name, words in _DIMENSIONS.items() if re.search(words, head, re.IGNORECASE)}
    if "how many" in clause.lower() or _UNKNOWN_UNIT.search(clause) or _dimension(unit) not in fitting:
        return False
    named = [found for found in everywhere if unit.quantity not in _MONEY or found.quantity in _MONEY]
    if not named and unit.quantity != "units":
        return unit.size == 1 and len(fitting) == 1
    known = unit in named or unit.quantity in (*_MONEY, "°", "units")  # of minutes and seconds, either may be meant
    return known and not any(found != unit and _dimension(found) in fitting for found in named)


def _dimension(unit: Unit) -> str:
    quantity = "length" if unit.quantity == "units" else unit.quantity.removeprefix("units ")
    return "$" if quantity in _MONEY else quantity


def is_asked(name: str, question: str) -> bool:
    """Whether the question asks for ``name`` itself: ``a + b`` but not ``a`` in "What is a + b?"."""
    name, text = (re.sub(r"\\overline|[\\{}]", "", clean(part)) for part in (name, asked(question)))
    text = re.sub(r"[$ ]+", " ", text)
    if name.isalpha() and name.isupper() and name not in unknowns(question):
        initials = "".join(word[0] for word in text.casefold().split()[1:] if len(word) > 3)
        if name.casefold() in initials[: _HEAD if len(name) > 1 else 1]:
            return True  # its initials: A of area, GCD of greatest common divisor
    if any(_SOLVED.match(clause) for clause in text.split("\n")) and unknowns(question) - set("fgh") == {name}:
        return True
    letters = " ?".join(map(re.escape, name.replace(" ", "")))
    path = rf"{_PATH}(?:(?:sum|product|difference|ratio|expression|quantity|probability) (?:of )?)?"
    link = path if len(name) > 1 else _PATH
    after = r"(?![\w(]| ?[+*/^|<>=!'-])"
    return any(re.match(rf"{link}{letters}{after}", clause, re.IGNORECASE) for clause in text.split("\n"))
