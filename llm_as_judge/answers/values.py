r"""Typed values: what the text of an answer denotes.

A value is a formula with an optional unit, a list, tuple, set or interval, a named value (``x = 5``), a relation, or
else text. Types are never converted: ``(0, 1)`` is not ``[0, 1]``, ``50%`` is not ``50``. Arithmetic is not done:
``10-15`` may be a range, ``3-2`` a score, ``6/8`` a time signature, ``2 \times 3`` a size, so each equals only itself.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate

from llm_as_judge.answers import algebra
from llm_as_judge.answers.formulas import Formula, approximate, exact, num, parse, symbols
from llm_as_judge.answers.notation import clean, number, tight, unwrap
from llm_as_judge.answers.units import UNITS, Unit, split_unit

_LONGEST = 600
_DEEPEST = 12  # nested brackets
_MOST_SIGNS = 12  # relations and unions
_MOST_ITEMS = 40  # longer lists are text, equal in the same order only
_MONEY = re.compile(r"([+-]?)\s*([$€£¥])\s*([^$€£¥]+)")
_DASH = re.compile(r"\W*[-\u2013\u2212] +\d")  # rather a dash than a sign
_THOUSANDS = re.compile(r"(?<=[$€£¥])\d{1,3}(?:,\d{3})+(?!\d)")
_RATIO_IN_WORDS = re.compile(r"\d+(?: to \d+)+")
_ALL_REAL = re.compile(r"\\mathbb ?(?:\{ ?R ?\}|R)|\u211d|(?:the set of )?all reals?(?: numbers?)?", re.IGNORECASE)
#: Labels of parts; those in brackets stand before a space or a number.
_LABELS = (
    re.compile(r"(?<![\w^*/+)-])(?<!-\s)\((?:[A-Ha-h]|[1-9]|[ivx]{1,4}|[IVX]{1,4})\)(?=\s|\d)"),
    re.compile(r"(?<!\S)(?:[A-Ha-h]|[ivx]{1,4})\)(?=\s|\d)"),
    re.compile(r"(?<!\S)[^\W\d_]+(?: \w{1,2})?:(?=\s)"),
)
_CLOSING = {"(": ")]", "[": ")]", "{": "}"}
INTERVALS = ("()", "[)", "(]", "[]")
_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega))(?:_(?:\{[\w,]+\}|\w+)|')?"
_SEGMENT = r"(?:[A-Z]{2,3}|\|[A-Z]{2}\||\\overline\{[A-Z]{2}\}|\\angle\s*[A-Z]{1,3})"
_SYMBOL = (
    rf"(?:{_LETTER}(?:\s*\(\s*{_LETTER}\s*\))?|\(\s*{_LETTER}(?:\s*,\s*{_LETTER})+\s*\)|{_LETTER}(?:\s*:\s*{_LETTER})+"
    rf"|{_SEGMENT}|\\frac\{{{_SEGMENT}\}}\{{{_SEGMENT}\}})"
)
_NAME = re.compile(rf"{_SYMBOL}|[^\W\d_]{{4,20}}(?: [A-Za-z]{{1,20}}){{0,3}}")
_SIGNS = re.compile(r"([=∈<>≤≥≠≈])")
FLIPPED = {"=": "=", "≠": "≠", "<": ">", ">": "<", "≤": "≥", "≥": "≤"}


@dataclass(frozen=True, slots=True)
class Value:
    """``tree`` in the base of ``unit``, ``items`` between ``brackets``, ``relation`` or only ``text``.

    ``brackets`` is ``{}`` for sets, ``±`` for the two values of a formula, ``∪`` for unions, ``&`` for a
    list joined by words, empty for one joined by commas. ``name`` is the variable that has the value.
    """

    text: str
    name: str = ""
    tree: Formula | None = None
    unit: Unit | None = None
    items: "tuple[Value, ...]" = ()
    brackets: str = ""
    relation: tuple[str, Formula, Formula] | None = None

    @property
    def number(self) -> Fraction | None:
        return Fraction(self.tree[1]) if self.tree is not None and self.tree[0] == "num" else None

    @property
    def bare(self) -> Formula | None:
        """The formula as it would be without its unit."""
        return self.tree if self.tree is None or self.unit is None else _times(self.tree, 1 / self.unit.size)


def read(text: str) -> Value:
    """Read ``text`` as the first type that fits; text that is too long or too deeply nested is equal to nothing."""
    long = len(text) > _LONGEST or len(_SIGNS.findall(text)) > _MOST_SIGNS
    if long or max(_depths(text)) > _DEEPEST or _DASH.match(text):
        return Value("")
    plain = _THOUSANDS.sub(lambda amount: amount.group().replace(",", ""), clean(text))
    if _RATIO_IN_WORDS.fullmatch(plain):
        plain = plain.replace(" to ", ":")
    if _ALL_REAL.fullmatch(plain):
        plain = "(-\\infty,\\infty)"
    kinds = (_quantity, labelled, _bracketed, _listed, _related, _formula)
    return next(filter(None, (kind(plain) for kind in kinds)), Value(tight(plain)))


def quantity(text: str) -> Value | None:
    """Read ``text`` as a number with its unit; None for anything else and for 9/11, which may be a date or a score."""
    plain = clean(text) if len(text) <= _LONGEST else ""
    value = None if re.search(r"\d\s*/\s*\d", plain) else _quantity(plain)
    return value if value is not None and value.number is not None else None


def _quantity(plain: str) -> Value | None:
    if (tree := _written(plain)) is not None:
        return Value(plain, tree=tree)
    if found := _MONEY.fullmatch(plain):
        sign, mark, said = found.groups()
        value = number(said.strip())
        return None if value is None else Value(plain, tree=num(-value if sign == "-" else value), unit=UNITS[mark])
    if (split := split_unit(plain)) is None:
        return None
    before, unit = clean(split[0]), split[1]
    tree = _written(before) or _denoted(parse(before))
    return None if tree is None or symbols(tree) else Value(plain, tree=_times(tree, unit.size), unit=unit)


def _written(plain: str) -> Formula | None:
    """Read the number that is written as one; a fraction that is not in lowest terms as it is."""
    value = number(plain)
    tree = parse(plain) if value is not None and re.search(r"\d\s*/|^\W?\\frac", plain) else None
    return _denoted(tree) or (None if value is None else num(value))


def _denoted(tree: Formula | None) -> Formula | None:
    """Read what a formula denotes: its number if any; sums, products and fractions to be worked out as they are."""
    value = None if tree is None else exact(tree)
    if tree is None or value is None:
        return tree
    kind, *parts = tree[1] if tree[0] == "neg" else tree
    reduced = kind == "div" and parts[0][0] in ("num", "neg") and parts[1] == num(Fraction(value.denominator))
    scientific = kind == "mul" and parts[0][0] == "num" and parts[1][:2] == ("pow", ("num", "10"))
    return ("as", tree) if kind in ("add", "mul", "div") and not (reduced or scientific) else num(value)


def _times(tree: Formula, factor: Fraction) -> Formula:
    product = ("mul", num(factor), tree)
    value = exact(product)
    return product if value is None else num(value)


def _bracketed(plain: str) -> Value | None:
    if "∪" in plain and "∈" not in plain:
        parts = [read(part) for part in plain.split("∪")]
        return Value(plain, items=tuple(parts), brackets="∪") if all(part.items for part in parts) else None
    body = plain.replace("\\{", "{").replace("\\}", "}").replace("\\lbrace", "{").replace("\\rbrace", "}")
    if len(body) < 3 or body[0] not in _CLOSING or body[-1] not in _CLOSING[body[0]] or not _balanced(body[1:-1]):
        return None
    brackets, inner = body[0] + body[-1], body[1:-1]
    parts_text = _split(inner, "," if "," in inner else ";")
    if len(parts_text) == 1 and (brackets == "()" or inner.lstrip().startswith("\\begin")):
        return read(inner)
    if not all(parts_text) or len(parts_text) > _MOST_ITEMS:
        return None
    items = [read(part) for part in parts_text]
    if brackets == "[]" and len(items) == 1 and items[0].number is not None:
        return items[0]
    if brackets == "[]" and all(item.brackets == "[]" and all(cell.tree for cell in item.items) for item in items):
        rows = r"\\".join(part[1:-1].replace(",", "&") for part in parts_text)
        return _formula(rf"\begin{{matrix}}{rows}\end{{matrix}}")
    return Value(plain, items=_flat(items) if brackets == "{}" else tuple(items), brackets=brackets)


def labelled(plain: str) -> Value | None:
    """Read parts after labels, as ``(a) 3 (b) 5`` and ``Part 1: 6; Part 2: 9``; each is named by its label."""
    for label in _LABELS:
        names = [tight(found.group()).strip("():").lower() for found in label.finditer(plain)]
        first, *parts = (re.sub(r"(?: and)?[ ,;]*\Z", "", part.strip()) for part in label.split(plain))
        if 1 < len(names) == len(set(names)) and not first and all(parts):
            items = (replace(read(part), name=name) for name, part in zip(names, parts, strict=True))
            return Value(plain, items=tuple(items))
    return None


def _flat(items: list[Value]) -> tuple[Value, ...]:
    """Return ``items`` with both values of every ``±``."""
    return tuple(one for item in items for one in (item.items if item.brackets == "±" else (item,)))


def _listed(plain: str) -> Value | None:
    """Read parts between commas, semicolons, ``and`` or ``or``; ``x = 1, 2`` is a set of values of x."""
    groups = _split(plain, ";")
    if 1 < len(groups) <= _MOST_ITEMS and all(groups):
        made = [replace(v, brackets="()") if (v := read(group)).items and not v.brackets else v for group in groups]
        return Value(plain, items=tuple(made))
    by_comma = _split(plain, ",")
    parts = [p for part in by_comma for p in re.split(r"\s(?:and|or)\s|(?<=\))\s?(?:and|or)\s?(?=\()", part)]
    parts = [re.sub(r"^(?:and|or)\s", "", part.strip()).strip() for part in parts]
    if not 2 <= len(parts) <= _MOST_ITEMS or not all(parts) or not _balanced(plain):
        return None
    items = [read(unwrap(part)) for part in parts]
    names = [item.name for item in items]
    joined_by_or = len(by_comma) == 1 and re.search(r"\sand\s|\)\s?and", plain) is None
    if any(item.name and item.brackets in INTERVALS for item in items):  # x < 1 or x > 3
        if not joined_by_or:
            return Value(plain, items=tuple(items), brackets="&")
        bare = tuple(replace(item, name="") for item in items)
        return Value(plain, names[0], items=bare, brackets="∪") if len(set(names)) == 1 else Value(plain)
    if names[0] and (len(set(names)) == 1 or not any(names[1:])):
        return Value(plain, name=names[0], items=_flat([replace(item, name="") for item in items]), brackets="{}")
    if joined_by_or and any(names):
        return Value(plain)  # x = 1 or y = 2
    if any(item.brackets == "±" for item in items) and not any(names):
        return Value(plain, items=_flat(items), brackets="{}")
    return Value(plain, items=tuple(items), brackets="" if len(by_comma) > 1 else "&")


def _related(plain: str) -> Value | None:
    """Read sides between relation signs."""
    sides = [side.strip() for side in _SIGNS.split(plain)]
    signs, sides = "".join(sides[1::2]), sides[::2]
    if not signs or not all(sides):
        return None
    if signs.find("≈") == len(signs) - 1:
        return _approximated(plain.partition("≈")[0], sides[-1])
    if signs in ("=" * len(signs), "∈"):
        return _equated(plain, sides)
    if len(sides) == 3 and _NAME.fullmatch(sides[1]):
        up, down = (set(signs) <= set(allowed) for allowed in ("<≤", ">≥"))
        low, high = (sides[0], sides[2]) if up else (sides[2], sides[0])
        return _interval(sides[1], read(low), read(high), signs if up else signs[::-1]) if up or down else None
    if len(sides) != 2:
        return None
    left, right, sign = parse(sides[0]), parse(sides[1]), signs
    if left is None or right is None:
        return None
    if right[0] == "sym" and right[1] != "infty":
        left, right, sign, sides = right, left, FLIPPED[sign], sides[::-1]
    if left[0] == "sym" and sign != "≠" and symbols(right) <= {"infty"}:
        ends = (read("-\\infty"), read(sides[1])) if sign in "<≤" else (read(sides[1]), read("\\infty"))
        return _interval(sides[0], *ends, f"<{sign}" if sign in "<≤" else f"{sign}<")
    return Value(tight(plain), relation=(sign, left, right))


def _interval(name: str, low: Value, high: Value, signs: str) -> Value | None:
    """Read ``a < x ≤ b``; the signs are those on the left and on the right."""
    if any(end.items or end.relation or end.name or end.tree is None for end in (low, high)):
        return None
    if low.number is not None and high.number is not None and low.number >= high.number:
        return None
    brackets = ("[" if signs[0] in "≤≥" else "(") + ("]" if signs[1] in "≤≥" else ")")
    return Value(f"{name}:{low.text}{signs}{high.text}", tight(name), items=(low, high), brackets=brackets)


def _equated(plain: str, sides: list[str]) -> Value | None:
    """Read ``name = value``, an equation, or a chain of equal sides: the value of ``x = 3 + 2 = 5`` is 5."""
    if len(sides) == 2 and _NAME.fullmatch(sides[1]) and not _NAME.fullmatch(sides[0]):
        sides = sides[::-1]
    last = read(sides[-1])
    shares = (re.sub(r" of (?=\d)", "*", re.sub(r"(?<=\d)% of (?=\d)", "/100*", side)) for side in sides[:-1])
    first, *middles = (parse(re.sub(r"°|[$€£¥](?=\d)", "", side)) for side in shares)
    values = [tree for tree in (last.bare, last.tree) if tree is not None]  # of 16%, 16 and 0.16
    for middle in middles:
        if middle is None or not any(algebra.equal(middle, value) for value in values):
            return None
    own = {sides[0][:1]} | (set() if first is None else symbols(first))  # f(x) = f + 1, x = 2x
    used = last.tree is not None and not own.isdisjoint(symbols(last.tree))
    if _NAME.fullmatch(sides[0]) and not (last.name or last.relation or used):
        return _named(tight(sides[0]), last)
    tree = last.bare or parse(sides[-1])
    if first is None or tree is None:
        return None
    if len(sides) == 2 and (symbols(first) or symbols(tree)) and not algebra.equal(first, tree):
        return Value(tight(plain), relation=("=", first, tree))
    return last if any(algebra.equal(first, value) for value in values or [tree]) else None


def _named(name: str, value: Value) -> Value:
    """Return ``value`` with its name; ``(x, y) = (1, 2)`` as ``x = 1, y = 2``."""
    names = name.removeprefix("(").removesuffix(")").split(",")
    if len(names) > 1 and value.brackets == "()" and len(names) == len(value.items):
        return replace(value, brackets="", items=tuple(map(_named, names, value.items)))
    return replace(value, name=name)


def _approximated(left: str, right: str) -> Value | None:
    """Return the left side of ``left ≈ right`` if ``right`` is its decimal, rounded or cut off."""
    value, shown = read(left), number(right)
    near = None if value.tree is None or value.unit else as_fraction(value.tree)
    places = len(right.partition(".")[2])
    return value if near is not None and shown is not None and rounds_to(near, shown, places) else None


def as_fraction(tree: Formula) -> Fraction | None:
    """Return the real number that a formula without symbols denotes, exact or as a float."""
    if (value := exact(tree)) is not None or symbols(tree):
        return value
    near = approximate(tree, {})
    return None if near is None or near.imag else Fraction(near.real)


def rounds_to(value: Fraction, decimal: Fraction, places: int) -> bool:
    """Tell whether ``decimal`` is ``value`` rounded or cut off after ``places`` decimal places."""
    scaled, shown = abs(value) * 10**places, abs(decimal) * 10**places
    return value * decimal >= 0 and shown in (scaled // 1, (scaled + Fraction(1, 2)) // 1)


def _formula(plain: str) -> Value | None:
    if plain.count("±") == 1:
        both = [_formula(plain.replace("±", sign)) for sign in "+-"]
        if both[0] is None or both[1] is None:
            return None
        return Value(tight(plain), items=(both[0], both[1]), brackets="±")
    tree = parse(plain)
    if tree is None or tree[0] == "mod":  # 6 mod 7 may mean a class of numbers
        return None
    return Value(tight(plain), tree=_denoted(tree))


def _split(text: str, separator: str) -> list[str]:
    """Split ``text`` at separators outside brackets; one part if brackets do not close."""
    if not _balanced(text):
        return [text]
    cuts = [i for i, depth in enumerate(_depths(text)[:-1]) if depth == 0 and text[i] == separator]
    return [text[i + 1 : j].strip() for i, j in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def _depths(text: str) -> list[int]:
    """Count the brackets that are open before each character, and at the end."""
    return list(accumulate(((char in "([{") - (char in ")]}") for char in text), initial=0))


def _balanced(text: str) -> bool:
    depths = _depths(text)
    return min(depths) == 0 == depths[-1]
