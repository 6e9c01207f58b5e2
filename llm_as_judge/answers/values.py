r"""Typed values: what an answer's text denotes, and when two of them are the same.

A value is a number with an optional unit, a list, tuple, set or interval, a named value (``x = 5``), a relation
(``x < 3``), a formula, or else text. Types are never guessed across: ``(0, 1)`` is not ``[0, 1]``, ``50%`` is not
``50``. Numbers are exact; the one exception is a decimal of at least ``_FULL_PRECISION`` digits, which is how programs
print an exact number, and which must be right to its last digit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from llm_as_judge.answers import algebra
from llm_as_judge.answers.expressions import Tree, parse
from llm_as_judge.answers.latex import clean, tight, unwrap
from llm_as_judge.answers.numeric import approximate, exact, symbols
from llm_as_judge.answers.units import UNITS, Unit, split_unit

DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
_PLAIN = re.compile(rf"[+-]?{DIGITS}")
_RATIO = re.compile(rf"([+-]?{DIGITS})\s*/\s*({DIGITS})")
_FRAC = re.compile(rf"([+-]?)\\frac\{{([+-]?{DIGITS})\}}\{{([+-]?{DIGITS})\}}")
_MIXED = re.compile(r"([+-]?)(\d+)(?:\s*\\frac\{(\d+)\}\{(\d+)\}|\s+(\d+)/(\d+))")
_MONEY = re.compile(r"([+-]?)\s*([$€£¥])\s*([^$€£¥]+)")
_PROPORTION = re.compile(r"\d+(?:\s*:\s*\d+)+")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()
_TENS = "thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 3)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
_LONGEST_NUMBER = 300  # int() refuses 4,300 digits; nothing this long is an answer
_LONGEST_TEXT = 2000
_FULL_PRECISION = 15  # significant digits; fewer may have been rounded by the one who answers
_CASELESS = frozenset(("yes", "no", "true", "false", "even", "odd", "none"))
_CLOSING = {"(": ")]", "[": ")]", "{": "}"}
_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega))(?:_(?:\{[\w,]+\}|\w+)|')?"
_NAME = (
    rf"(?:{_LETTER}(?:\s*\(\s*{_LETTER}\s*\))?|\(\s*{_LETTER}(?:\s*,\s*{_LETTER})+\s*\)|{_LETTER}(?:\s*:\s*{_LETTER})+)"
)
_NAMED = re.compile(rf"({_NAME})\s*[=∈]\s*(.+)", re.DOTALL)
_NAME_LAST = re.compile(rf"([^=<>≤≥≠∈]+?)\s*=\s*({_NAME})")
_RELATION = re.compile(r"([^=<>≤≥≠]+)([=<>≤≥≠])([^=<>≤≥≠]+)")
_FLIPPED = {"=": "=", "≠": "≠", "<": ">", ">": "<", "≤": "≥", "≥": "≤"}
_OF_X = re.compile(r"[fgh]\([a-z]\)")


@dataclass(frozen=True, slots=True)
class Value:
    """``number`` with ``unit``, ``items`` between ``brackets``, ``relation``, ``tree`` or ``text``: the first there is.

    ``brackets`` is ``{}`` for sets, ``∪`` for unions, ``:`` for proportions, empty for a bare list. ``name`` is the
    variable that is said to be it.
    """

    text: str
    name: str = ""
    number: Fraction | None = None
    unit: Unit | None = None
    items: tuple[Value, ...] = ()
    brackets: str = ""
    relation: tuple[str, Tree, Tree] | None = None
    tree: Tree | None = None
    digits: int = 0  # significant digits, where it is written as a decimal


def number(text: str) -> Fraction | None:
    """The exact number that ``text`` (as ``latex.clean`` leaves it) writes in digits, as a fraction or in words."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _PLAIN.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if found := _MIXED.fullmatch(text):
        sign, whole, *parts = found.groups()
        above, below = (int(part) for part in parts if part is not None)
        if 0 < above < below:
            value = int(whole) + Fraction(above, below)
            return -value if sign == "-" else value
    if found := _FRAC.fullmatch(text):
        sign, above_text, below_text = found.groups()
    elif found := _RATIO.fullmatch(text):
        sign, above_text, below_text = "", *found.groups()
    else:
        return _number_words(text)
    divisor = Fraction(below_text.replace(",", ""))
    if not divisor:
        return None
    value = Fraction(above_text.replace(",", "")) / divisor
    return -value if sign == "-" else value


def _number_words(text: str) -> Fraction | None:
    """``twenty-one``, ``two hundred and five``, ``3.5 million``."""
    words = text.lower().replace("-", " ").split()
    if not words or len(words) > 12:
        return None
    total, part, last = Fraction(0), None, 0
    for i, word in enumerate(words):
        if word == "and" and part is None and total and i + 1 < len(words):
            continue
        if word in _SCALES:
            scale = _SCALES[word]
            if part is None:
                return None
            part *= scale
            if scale >= 1000 or scale == 12 or i + 1 == len(words) or words[i + 1] == "and":
                total, part = total + part, None
            last = 0
        elif i == 0 and _PLAIN.fullmatch(word):
            part = Fraction(word.replace(",", ""))
            if len(words) == 1 or words[1] not in _SCALES:
                return None
        elif word in _WORDS:
            value = _WORDS[word]
            if part is not None and not (
                (last >= 20 and last % 10 == 0 and 0 < value < 10) or (part >= 100 and part % 100 == 0)
            ):
                return None
            part, last = (part or Fraction(0)) + value, value
        else:
            return None
    return total + (part or 0)


@lru_cache(maxsize=4096)
def read(text: str) -> Value:
    """``text`` as the first type that fits."""
    if len(text) > _LONGEST_TEXT:
        return Value(text)
    plain = clean(text)
    if plain.startswith("{") and plain.endswith("}") and balanced(plain[1:-1]):  # LaTeX shows no such braces
        inner = plain[1:-1].strip()
        plain = inner if "," not in inner else plain
    return (
        _quantity(plain)
        or _bracketed(plain)
        or _listed(plain)
        or _named(plain)
        or _related(plain)
        or _formula(plain)
        or Value(tight(plain))
    )


def _quantity(plain: str) -> Value | None:
    if (value := number(plain)) is not None:
        digits = len(re.sub(r"\D", "", plain).lstrip("0")) if re.fullmatch(r"[+-]?\d*\.\d+", plain) else 0
        return Value(plain, number=value, digits=digits)
    if found := _MONEY.fullmatch(plain):
        sign, mark, amount = found.groups()
        value = number(amount.strip())
        return None if value is None else Value(plain, number=-value if sign == "-" else value, unit=UNITS[mark])
    if (split := split_unit(plain)) and (value := number(clean(split[0]))) is not None:
        return Value(plain, number=value * split[1].size, unit=split[1])
    if _PROPORTION.fullmatch(plain):
        return Value(plain, items=tuple(read(part) for part in plain.split(":")), brackets=":")
    if plain.startswith("±") and (value := number(plain[1:].strip())) is not None:
        both = (Value(plain, number=value), Value(plain, number=-value))
        return Value(plain, items=both, brackets="{}")
    return None


def _bracketed(plain: str) -> Value | None:
    if "∪" in plain:
        parts = [read(part) for part in plain.split("∪")]
        whole = all(part.items for part in parts)
        return Value(plain, items=tuple(parts), brackets="∪") if whole else None
    body = plain.replace("\\{", "{").replace("\\}", "}").replace("\\lbrace", "{").replace("\\rbrace", "}")
    if len(body) < 3 or body[0] not in _CLOSING or body[-1] not in _CLOSING[body[0]] or not balanced(body[1:-1]):
        return None
    inner = body[1:-1]
    parts_text = split_list(inner)
    if len(parts_text) == 1 and body[0] + body[-1] == "()":
        return read(inner)
    if not all(parts_text):
        return None
    return Value(plain, items=tuple(read(part) for part in parts_text), brackets=body[0] + body[-1])


def _listed(plain: str) -> Value | None:
    """Parts between commas, semicolons or ``and``; ``x = 1, 2`` is a set of values of x."""
    groups = split_list(plain, ";")
    if len(groups) > 1 and all(groups):
        made = [replace(v, brackets="()") if (v := read(group)).items and not v.brackets else v for group in groups]
        return Value(plain, items=tuple(made))
    parts = [p for part in split_list(plain) for p in re.split(r"\s+and\s+|(?<=\))\s*or\s*(?=\()", part)]
    parts = [re.sub(r"^(?:and|or)\s+", "", part) for part in parts]
    if len(parts) < 2 or not all(parts) or not balanced(plain):
        return None
    items = [read(unwrap(part)) for part in parts]
    names = [item.name for item in items]
    if names[0] and (len(set(names)) == 1 or not any(names[1:])):
        bare = tuple(replace(item, name="") for item in items)
        return Value(plain, name=names[0], items=bare, brackets="{}")
    return Value(plain, items=tuple(items))


def _named(plain: str) -> Value | None:
    found = _NAMED.fullmatch(plain)
    name, body = found.groups() if found else ("", "")
    if not found and (last := _NAME_LAST.fullmatch(plain)):
        body, name = last.groups()
    if not name:
        return None
    value = read(body)
    letter = re.match(_LETTER, name)
    inside = value.tree is not None and letter is not None and letter.group() in symbols(value.tree)
    return None if value.name or value.relation or inside else replace(value, name=tight(name))


def _related(plain: str) -> Value | None:
    """``lhs op rhs``; ``3 + 2 = 5`` is the 5 it computes, ``\frac{19}{2} ≈ 9.5`` the exact side."""
    if plain.count("≈") == 1:
        left = plain.partition("≈")[0].strip()
        tree = parse(left)
        return read(left) if tree is not None and not symbols(tree) else None
    found = _RELATION.fullmatch(plain)
    if found is None:
        return None
    left, sign, right = found.groups()
    a, b = parse(left), parse(right)
    if a is None or b is None:
        return None
    if sign == "=" and not symbols(a) and not symbols(b) and a[0] != "num":
        result = read(right)
        return result if same(read(left), result) else None
    return Value(tight(plain), relation=(sign, a, b))


def _formula(plain: str) -> Value | None:
    tree = parse(plain)
    if tree is None:
        return None
    if (value := exact(tree)) is not None:
        return Value(tight(plain), number=value)
    return Value(tight(plain), tree=tree)


def split_list(text: str, separator: str = ",") -> list[str]:
    """Split at separators outside brackets; one part when brackets do not close or there is no separator.

    Inside a tuple written with semicolons these separate.
    """
    if separator == "," and "," not in text and ";" in text:
        separator = ";"
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if balanced(text) else [text]


def balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return False
    return depth == 0


def same(a: Value, b: Value) -> bool:
    """Whether two values are the same. Symmetric."""
    if a.relation or b.relation:
        return _same_relation(a, b)
    if a.name and b.name and not _same_name(a.name, b.name):
        return False
    if a.number is not None and b.number is not None:
        return _same_number(a, b)
    if a.items or b.items:
        return _same_items(a, b)
    x, y = _tree(a), _tree(b)
    if x is not None and y is not None:
        return algebra.equal(x, y) or _printed(a, y) or _printed(b, x)
    if a.number is not None or b.number is not None or not a.text or not b.text:
        return False
    return a.text == b.text or (a.text.lower() == b.text.lower() and a.text.lower() in _CASELESS)


def _tree(value: Value) -> Tree | None:
    if value.number is not None:
        return None if value.unit else ("num", str(value.number))
    return value.tree


def _same_name(a: str, b: str) -> bool:
    return a == b or (a == "y" and bool(_OF_X.fullmatch(b))) or (b == "y" and bool(_OF_X.fullmatch(a)))


def _same_number(a: Value, b: Value) -> bool:
    assert a.number is not None and b.number is not None
    if a.unit and b.unit:
        return a.unit.quantity == b.unit.quantity and a.number == b.number
    unit = a.unit or b.unit
    if unit is None:
        return a.number == b.number or _rounds_to(a.number, b) or _rounds_to(b.number, a)
    named, bare = (a, b) if a.unit else (b, a)
    assert named.number is not None and bare.number is not None
    if unit.quantity == "%":  # an integer beside a percentage may be meant in percent
        return named.number == bare.number and bare.number.denominator != 1
    return unit.silent and named.number / unit.size == bare.number


def _rounds_to(value: Fraction, decimal: Value) -> bool:
    """Whether a decimal of full precision is ``value``, rounded or cut off at its last place."""
    if decimal.digits < _FULL_PRECISION or decimal.number is None:
        return False
    places = len(decimal.text.partition(".")[2])
    scaled, shown = abs(value) * 10**places, abs(decimal.number) * 10**places
    return value * decimal.number > 0 and shown in (scaled // 1, (scaled + Fraction(1, 2)) // 1)


def _printed(decimal: Value, tree: Tree) -> bool:
    """``_rounds_to`` for an irrational number without symbols, to the precision of a float."""
    if decimal.digits < _FULL_PRECISION or decimal.number is None or symbols(tree):
        return False
    value = approximate(tree, {})
    return value is not None and not value.imag and abs(value.real - float(decimal.number)) <= 4e-16 * abs(value.real)


def _same_items(a: Value, b: Value) -> bool:
    if len(a.items) != len(b.items):
        return False
    pair = {a.brackets, b.brackets}
    if len(pair) > 1 and pair != {"", "{}"}:
        return False
    if pair <= {"{}", "∪"} or (all(item.brackets == "()" for item in (*a.items, *b.items)) and pair == {""}):
        return _same_set(a.items, b.items)
    names = [item.name for item in b.items]
    if all(names) and len(set(names)) == len(names) and {item.name for item in a.items} == set(names):
        by_name = {item.name: item for item in b.items}
        return all(same(item, by_name[item.name]) for item in a.items)
    if "{}" in pair and a.name != b.name and {a.brackets, b.brackets} == {"", "{}"} and (a.name or b.name):
        return _same_set(a.items, b.items)
    return all(same(x, y) for x, y in zip(a.items, b.items, strict=True))


def _same_set(a: Sequence[Value], b: Sequence[Value]) -> bool:
    rest = list(b)
    for item in a:
        match = next((i for i, other in enumerate(rest) if same(item, other)), None)
        if match is None:
            return False
        del rest[match]
    return not rest


def _relation(value: Value) -> tuple[str, Tree, Tree] | None:
    """A named formula is an equation too."""
    if value.relation is None and value.name and (tree := _tree(value)) is not None:
        name = parse(value.name)
        return None if name is None else ("=", name, tree)
    return value.relation


def _same_relation(a: Value, b: Value) -> bool:
    x, y = _relation(a), _relation(b)
    if x is None or y is None:
        return False
    for sign, left, right in (y, (_FLIPPED[y[0]], y[2], y[1])):
        if x[0] == sign and algebra.equal(x[1], left) and algebra.equal(x[2], right):
            return True
    if x[0] == y[0] == "=":
        return algebra.proportional(("add", x[1], ("neg", x[2])), ("add", y[1], ("neg", y[2])))
    return False
