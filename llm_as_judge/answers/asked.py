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
_RELATIVE = re.compile("which|who|whose|whom|when|where", re.IGNORECASE)
_TASK_WORD = re.compile(
    r"\b(?:find|compute|evaluate|determine|calculate|simplify|solve|express|write|give|list|name|factor|expand|convert"
    r"|rationalize|complete|order|put)\b",
    re.IGNORECASE,
)
_HEAD = 5  # words
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
    found = [_interrogative(s) or _TASK_WORD.search(s) if s.rstrip().endswith("?") else task(s) for s in sentences]
    found = found if any(found) else [*map(_interrogative, sentences)]
    return "\n".join(each.string[each.start() :] for each in found if each) or question[-_LONGEST:]


def _interrogative(sentence: str) -> re.Match[str] | None:
    """The first question word that is not a relative pronoun, as in "The man who fell lived in which city?"."""
    words = [*_QUESTION_WORD.finditer(sentence)]
    asking = (w for w in words if not _RELATIVE.fullmatch(w.group()) or len(sentence[: w.start()].split()) < 2)
    return next(asking, words[-1] if words else None)


def _head(question: str) -> str:
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


def may_have(unit: Unit, question: str) -> bool:
    """Whether an answer may have this unit: the one that the question wants, or the only one that fits its words."""
    clause, everywhere = asked(question), units(question)
    if unit.quantity == "%":
        return unit in everywhere
    if wanted := units(clause, wanted=True):
        return (unit.quantity, unit.size) in ((found.quantity, found.size) for found in wanted)
    named = [found for found in everywhere if unit.quantity not in _MONEY or found.quantity in _MONEY]
    rivals = [found for found in named if _base(found) != _base(unit)]  # of minutes and seconds, either may be meant
    known = len(rivals) < len(named) or unit.quantity in (*_MONEY, "°") or (not named and unit.size == 1)
    fitting = _fits(unit, question) and not any(_fits(found, question) for found in rivals)
    return known and fitting and "how many" not in clause.lower()


def _fits(unit: Unit, question: str) -> bool:
    """Whether the first words of the question may ask for a quantity of this unit."""
    quantity = "$" if unit.quantity in _MONEY else unit.quantity
    dimension = _DIMENSIONS.get("length" if quantity == "units" else quantity.removeprefix("units "))
    return dimension is not None and re.search(dimension, _head(question), re.IGNORECASE) is not None


def _base(unit: Unit) -> tuple[str, object]:
    """Units of one family with the same base fit together: cm and square cm, but not cents and dollars."""
    if unit.quantity in _MONEY:
        return "$", (unit.quantity, unit.size)
    power = {"length": 1, "area": 2, "space": 3}.get(unit.quantity)
    return ("length", round(float(unit.size) ** (1 / power), 9)) if power else (unit.quantity, unit.size)


def is_asked(name: str, question: str) -> bool:
    """Whether the question asks for ``name`` itself: ``a + b`` but not ``a`` in "What is a + b?"."""
    name, text = (re.sub(r"\\overline|[\\{}]", "", clean(part)) for part in (name, asked(question)))
    text = re.sub(r"[$ ]+", " ", text)
    if len(name) > 2 and name.isalpha() and not name.isupper():
        name, text = name.casefold(), _head(question).casefold()
    if name.isalpha() and name.isupper() and name not in unknowns(question):
        words = re.findall("[a-z]+", (_head(question) if len(name) == 1 else text).casefold())
        if name.casefold() in "".join(word[0] for word in words if len(word) > 3 or len(name) > 1):
            return True  # its initials: A of area, GCD of greatest common divisor
    letters = " ?".join(map(re.escape, name.replace(" ", "")))
    found = re.finditer(rf"(?<![\w+*/^|(<>=-])(?<![+*/^|<>=\d-] ){letters}(?![\w(]| ?[+*/^|<>=!'-])", text)
    owners = [_OWNER.search(text[: each.start()]) for each in found]
    return any(owner is None or owner.group(1) in _TRANSPARENT for owner in owners)
