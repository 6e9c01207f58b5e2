r"""Typed values: what the text of an answer denotes.

A value is a number with an optional unit, a list, tuple, set or interval, a named value (``x = 5``), a relation
(``x < 3``), an approximation, a formula, or else text. Types are never converted: ``(0, 1)`` is not ``[0, 1]``,
``50%`` is not ``50``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from llm_as_judge.answers import algebra
from llm_as_judge.answers.expressions import Tree, parse
from llm_as_judge.answers.latex import clean, tight, unwrap
from llm_as_judge.answers.numerals import amount, number
from llm_as_judge.answers.numeric import approximate, exact, symbols
from llm_as_judge.answers.units import UNITS, Unit, split_unit

_LONGEST = 600
_DEEPEST = 12  # nested brackets
_MOST_SIGNS = 12  # relations
_MOST_ITEMS = 40
_MONEY = re.compile(r"([+-]?)\s*([$€£¥])\s*([^$€£¥]+)")
_PROPORTION = re.compile(r"\d+(?:\s*:\s*\d+)+|\d+ to \d+")
_ALL_REAL = re.compile(r"\\mathbb ?(?:\{ ?R ?\}|R)|\u211d|(?:the set of )?all reals?(?: numbers?)?", re.IGNORECASE)
_CLOSING = {"(": ")]", "[": ")]", "{": "}"}
_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega))(?:_(?:\{[\w,]+\}|\w+)|')?"
_SEGMENT = r"(?:[A-Z]{2,3}|\|[A-Z]{2}\||\\overline\{[A-Z]{2}\}|\\angle\s*[A-Z]{1,3})"
_NAME = (
    rf"(?:{_LETTER}(?:\s*\(\s*{_LETTER}\s*\))?|\(\s*{_LETTER}(?:\s*,\s*{_LETTER})+\s*\)|{_LETTER}(?:\s*:\s*{_LETTER})+"
    rf"|{_SEGMENT}|\\frac\{{{_SEGMENT}\}}\{{{_SEGMENT}\}})"
)
_NAMED = re.compile(rf"({_NAME}|[^\W\d_]{{4,20}}(?: [A-Za-z]{{1,20}}){{0,3}})\s*[=∈]\s*(.+)")
_NAME_LAST = re.compile(rf"([^=<>≤≥≠∈]+)=\s*({_NAME})")
_RELATION = re.compile(r"([^=<>≤≥≠]+)([=<>≤≥≠])([^=<>≤≥≠]+)")
_BETWEEN = re.compile(r"([^=<>≤≥≠]+)([<>≤≥])([^=<>≤≥≠]+)([<>≤≥])([^=<>≤≥≠]+)")
_DECIMAL = re.compile(r"[+-]?\d*\.\d+")


@dataclass(frozen=True, slots=True)
class Value:
    """``number`` or ``tree`` with ``unit``, ``items`` between ``brackets``, ``relation`` or ``text``.

    ``brackets`` is ``{}`` for sets, ``±`` for the two values of a formula, ``∪`` for unions, ``:`` for proportions,
    ``&`` for a list joined by ``and``, ``|`` for one joined by ``or``, empty for one joined by commas. ``name`` is the
    variable that has the value; ``shown`` a decimal that the value is approximately equal to.
    """

    text: str
    name: str = ""
    number: Fraction | None = None
    unit: Unit | None = None
    items: tuple[Value, ...] = ()
    brackets: str = ""
    relation: tuple[str, Tree, Tree] | None = None
    tree: Tree | None = None
    digits: int = 0  # significant digits of a decimal
    shown: Fraction | None = None


def read(text: str) -> Value:
    """``text`` as the first type that fits; text that is too long or too deeply nested is equal to nothing."""
    if len(text) > _LONGEST or not _shallow(text):
        return Value("")
    plain = clean(text)
    if plain.startswith("{") and plain.endswith("}") and balanced(plain[1:-1]):  # LaTeX does not show such braces
        inner = plain[1:-1].strip()
        plain = inner if "," not in inner else plain
    if _ALL_REAL.fullmatch(plain):
        plain = "(-\\infty,\\infty)"
    return (
        _quantity(plain)
        or _bracketed(plain)
        or _listed(plain)
        or _named(plain)
        or _related(plain)
        or _formula(plain)
        or Value(tight(plain))
    )


def _shallow(text: str) -> bool:
    depth = deepest = signs = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
        signs += char in "=<>≤≥≠≈∈∪"
    return deepest <= _DEEPEST and signs <= _MOST_SIGNS


def quantity(text: str) -> Value | None:
    """``text`` as a number with its unit if nothing in it has to be computed; else None."""
    plain = clean(text) if len(text) <= _LONGEST else ""
    value = _quantity(plain)
    if value is None or value.number is None or (number(plain) is not None and amount(plain) is None):
        return None
    return value


def _quantity(plain: str) -> Value | None:
    if (value := number(plain)) is not None:
        digits = len(re.sub(r"\D", "", plain).lstrip("0")) if _DECIMAL.fullmatch(plain) else 0
        return Value(plain, number=value, digits=digits)
    if found := _MONEY.fullmatch(plain):
        sign, mark, said = found.groups()
        value = number(said.strip())
        return None if value is None else Value(plain, number=-value if sign == "-" else value, unit=UNITS[mark])
    if _PROPORTION.fullmatch(plain):
        return Value(plain, items=tuple(read(part) for part in re.split(r":| to ", plain)), brackets=":")
    if (split := split_unit(plain)) is None:
        return None
    before, unit = clean(split[0]), split[1]
    if (value := number(before)) is not None:
        return Value(plain, number=value * unit.size, unit=unit)
    tree = parse(before)
    return None if tree is None or symbols(tree) else Value(plain, tree=tree, unit=unit)


def _bracketed(plain: str) -> Value | None:
    if "∪" in plain:
        parts = [read(part) for part in plain.split("∪")]
        return Value(plain, items=tuple(parts), brackets="∪") if all(part.items for part in parts) else None
    body = plain.replace("\\{", "{").replace("\\}", "}").replace("\\lbrace", "{").replace("\\rbrace", "}")
    if len(body) < 3 or body[0] not in _CLOSING or body[-1] not in _CLOSING[body[0]] or not balanced(body[1:-1]):
        return None
    inner = body[1:-1]
    parts_text = split_list(inner)
    if len(parts_text) == 1 and (body[0] + body[-1] == "()" or inner.lstrip().startswith("\\begin")):
        return read(inner)
    if not all(parts_text) or len(parts_text) > _MOST_ITEMS:
        return None
    brackets = body[0] + body[-1]
    items = [read(part) for part in parts_text]
    if brackets == "[]" and len(items) == 1 and items[0].number is not None:
        return items[0]
    return Value(plain, items=_flat(items) if brackets == "{}" else tuple(items), brackets=brackets)


def _flat(items: list[Value]) -> tuple[Value, ...]:
    """``items`` with both values of every ``±``."""
    return tuple(one for item in items for one in (item.items if item.brackets == "±" else (item,)))


def _listed(plain: str) -> Value | None:
    """Parts between commas, semicolons, ``and`` or ``or``; ``x = 1, 2`` is a set of values of x."""
    groups = split_list(plain, ";")
    if 1 < len(groups) <= _MOST_ITEMS and all(groups):
        made = [replace(v, brackets="()") if (v := read(group)).items and not v.brackets else v for group in groups]
        return Value(plain, items=tuple(made))
    by_comma = split_list(plain)
    parts = [p for part in by_comma for p in re.split(r"\s(?:and|or)\s|(?<=\))\s?(?:and|or)\s?(?=\()", part)]
    parts = [re.sub(r"^(?:and|or)\s", "", part.strip()).strip() for part in parts]
    if not 2 <= len(parts) <= _MOST_ITEMS or not all(parts) or not balanced(plain):
        return None
    items = [read(unwrap(part)) for part in parts]
    names = [item.name for item in items]
    if names[0] and (len(set(names)) == 1 or not any(names[1:])):
        return Value(plain, name=names[0], items=_flat([replace(item, name="") for item in items]), brackets="{}")
    if any(item.brackets == "±" for item in items) and not any(names):
        return Value(plain, items=_flat(items), brackets="{}")
    brackets = "" if len(by_comma) > 1 else "&" if re.search(r"\sand\s|\)\s?and", plain) else "|"
    return Value(plain, items=tuple(items), brackets=brackets)


def _named(plain: str) -> Value | None:
    found = _NAMED.fullmatch(plain)
    name, body = found.groups() if found else ("", "")
    if not found and (last := _NAME_LAST.fullmatch(plain)):
        body, name = last.groups()
    if not name or "≈" in body:
        return None
    value = read(body)
    letter = re.match(_LETTER, name)
    inside = value.tree is not None and letter is not None and letter.group() in symbols(value.tree)
    only_text = value == Value(value.text) and "=" in body
    return None if value.name or value.relation or inside or only_text else replace(value, name=tight(name))


def _related(plain: str) -> Value | None:
    """``lhs op rhs``; the value of ``3 + 2 = 4 + 1 = 5`` is 5, of ``19/2 ≈ 9.5`` the exact side."""
    if plain.count("≈") == 1:
        return _approximated(*(side.strip() for side in plain.split("≈")))
    if found := _BETWEEN.fullmatch(plain):
        return _between(*(part.strip() for part in found.groups()))
    if plain.count("=") > 1 and not re.search(r"[<>≤≥≠]", plain):
        return _chained([side.strip() for side in plain.split("=")])
    found = _RELATION.fullmatch(plain)
    if found is None:
        return None
    left, sign, right = found.groups()
    a, b = parse(left), parse(right)
    if sign == "=" and a is not None and not symbols(a) and a[0] != "num":
        b = parse(_without_unit(right))
        if b is not None and not symbols(b):
            return read(right) if algebra.equal(a, b) else None
    return None if a is None or b is None else Value(tight(plain), relation=(sign, a, b))


def _without_unit(side: str) -> str:
    """The number of a result with a silent unit: ``8 - 2 = 6 km``."""
    split = split_unit(side.strip())
    return split[0] if split and split[1].silent and number(split[0]) is not None else side


def _chained(sides: list[str]) -> Value | None:
    """The last of several sides if all are one value; the first may be its name."""
    trees = [parse(side) for side in (*sides[:-1], _without_unit(sides[-1]))]
    first, last = trees[0], trees[-1]
    if last is None or not all(tree is not None and algebra.equal(tree, last) for tree in trees[1:]):
        return None
    if first is not None and algebra.equal(first, last):
        return read(sides[-1])
    if re.fullmatch(rf"{_NAME}|[^\W\d_]{{4,20}}", sides[0]) and not (first and symbols(first) & symbols(last)):
        return replace(read(sides[-1]), name=tight(sides[0]))
    return None


def _approximated(left: str, right: str) -> Value | None:
    """``left ≈ right``: the left side if ``right`` is its decimal, rounded or cut off; else only the decimal."""
    shown = number(right)
    if shown is None:
        return None
    if not left or re.fullmatch(_NAME, left):
        return Value(f"≈{right}", name=tight(left), shown=shown)
    value = read(left)
    near = value.number
    if near is None and value.tree is not None and not symbols(value.tree):
        computed = approximate(value.tree, {})
        near = Fraction(computed.real) if computed is not None and not computed.imag else None
    if near is None or value.unit:
        return None
    return replace(value, shown=shown) if rounds_to(near, shown, len(right.partition(".")[2])) else None


def rounds_to(value: Fraction, decimal: Fraction, places: int) -> bool:
    """Whether ``decimal`` is ``value`` rounded or cut off after ``places`` decimal places."""
    scaled, shown = abs(value) * 10**places, abs(decimal) * 10**places
    return value * decimal >= 0 and shown in (scaled // 1, (scaled + Fraction(1, 2)) // 1)


def _between(low: str, first: str, middle: str, second: str, high: str) -> Value | None:
    """``a < x ≤ b`` as an interval."""
    if not re.fullmatch(_NAME, middle) or (first in "<≤") != (second in "<≤"):
        return None
    if first in ">≥":
        low, first, second, high = high, second, first, low
    ends = (read(low), read(high))
    if any(end.items or end.relation or end.name or (end.number is None and end.tree is None) for end in ends):
        return None
    brackets = ("[" if first in "≤≥" else "(") + ("]" if second in "≤≥" else ")")
    return Value(f"{low}{first}{middle}{second}{high}", name=tight(middle), items=ends, brackets=brackets)


def _formula(plain: str) -> Value | None:
    if plain.count("±") == 1:
        both = [_formula(plain.replace("±", sign)) for sign in "+-"]
        if both[0] is None or both[1] is None:
            return None
        return Value(tight(plain), items=(both[0], both[1]), brackets="±")
    tree = parse(plain)
    if tree is None or tree[0] == "mod":  # 6 mod 7 may mean a class of numbers
        return None
    if (value := exact(tree)) is not None:
        return Value(tight(plain), number=value)
    return Value(tight(plain), tree=tree)


def split_list(text: str, separator: str = ",") -> list[str]:
    """``text`` split at separators outside brackets; one part if brackets do not close.

    Semicolons separate if there are no commas.
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
