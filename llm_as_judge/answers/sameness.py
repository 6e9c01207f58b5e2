"""Equality of two typed values: symmetric and without tolerance.

Numbers are exact, except that a decimal of at least ``_FULL_PRECISION`` digits, as programs print one, may stand for
the number that it is correct for to the last digit. Names, units, order and brackets count if both sides have them; if
one side has none, the other side's must be the only possible ones. ``in_form``: the second value is a reference, whose
form the first must have too; which form a question asks for is thus never read from its words.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from llm_as_judge.answers import algebra
from llm_as_judge.answers.formulas import Formula, arranged, exact, parse
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import split_unit
from llm_as_judge.answers.values import FLIPPED, Value, as_fraction, rounds_to

_FULL_PRECISION = 15  # significant digits; fewer may be rounded
_CASELESS = re.compile(r"no|[a-z]{3,}(?: [a-z]+)*")
_DECIMAL = re.compile(r"[+-]?\d*\.\d+")
_SCIENTIFIC = re.compile(
    r"-?(?:([1-9](?:\.\d+)?)(?:\\times|\\cdot|[*×·]))?10\^(?:-?\d|\{-?\d+\})|-?([1-9](?:\.\d+)?)e[+-]?\d+",
    re.IGNORECASE,
)
_OF_X = re.compile(r"[fgh]\([a-z]\)")
#: Sets of brackets, one of each side, whose items may come in any order.
_UNORDERED = ({"{}"}, {"{}", "±"}, {"±"}, {"∪"}, {"&", "±"}, {"&", "{}"}, {"", "±"})


def same(a: Value, b: Value, in_form: bool = False) -> bool:
    if a.relation or b.relation:
        return _same_relation(a, b, in_form)
    names = {a.name, b.name} - {""}
    if len(names) > 1 and not ("y" in names and any(map(_OF_X.fullmatch, names))):
        return False
    if a.items or b.items:
        return bool(a.items and b.items) and _same_items(a, b, in_form)
    if a.tree is not None and b.tree is not None:
        return not (in_form and other_form(a, b)) and _same_amount(a, b)
    if a.tree is not None or b.tree is not None or not a.text:
        return False
    x, y = a.text.lower(), b.text.lower()
    return a.text == b.text or (x == y and _CASELESS.fullmatch(x) is not None and a.text.isupper() == b.text.isupper())


def other_form(said: Value, gold: Value) -> bool:
    """Tell whether the forms differ. If the reference is a plain number, words and powers of ten will do as well."""
    form, wanted = form_of(said.text), form_of(gold.text)
    return form != wanted and (wanted[0] != "plain" or form[0] not in ("words", "scientific"))


def form_of(text: str) -> tuple[object, ...]:
    """Tell how a number or formula is written, apart from its unit and the order of its parts."""
    bare, unit = split_unit(clean(text)) or (text, None)
    plain, percent = clean(bare).strip("$€£¥"), unit is not None and unit.quantity == "%"
    if found := _SCIENTIFIC.fullmatch(plain.replace(" ", "")):
        return "scientific", Fraction(found[1] or found[2] or 1)
    if number(plain) is None and (tree := parse(plain)) is not None:
        return "formula", arranged(tree)
    if re.search(r"/|\\frac", plain):
        return ("fraction", *re.findall(r"\d+", plain))
    return "repeating" if "\\" in plain else "plain" if re.search(r"\d", plain) else "words", percent


def _same_amount(a: Value, b: Value) -> bool:
    assert a.tree is not None and b.tree is not None
    if a.unit is None and b.unit is None:
        return algebra.equal(a.tree, b.tree) or _printed(a, b.tree) or _printed(b, a.tree)
    if a.unit and b.unit:
        return a.unit.quantity == b.unit.quantity and algebra.equal(a.tree, b.tree)
    named, bare = (a, b.tree) if a.unit else (b, a.tree)
    assert named.unit and named.tree is not None and named.bare is not None
    if named.unit.quantity == "%":  # an integer next to a percentage may be meant in percent
        value = exact(bare)
        return value is not None and value.denominator != 1 and algebra.equal(named.tree, bare)
    return named.unit.silent and algebra.equal(named.bare, bare)


def _printed(decimal: Value, tree: Formula) -> bool:
    """Tell whether a decimal of full precision is the value of ``tree``, rounded or cut off at its last place."""
    if decimal.number is None or not _DECIMAL.fullmatch(decimal.text):
        return False
    value = as_fraction(tree) if len(re.sub(r"\D", "", decimal.text).lstrip("0")) >= _FULL_PRECISION else None
    return value is not None and rounds_to(value, decimal.number, len(decimal.text.partition(".")[2]))


def _same_items(a: Value, b: Value, in_form: bool) -> bool:
    if len(a.items) != len(b.items):
        return False
    x, y = _names(a), _names(b)
    if bool(x) != bool(y):
        return _in_order_of_names(a, b, in_form)
    kinds = {a.brackets, b.brackets}
    tuples = kinds <= {"", "&"} and all(item.brackets == "()" for item in (*a.items, *b.items))
    named_set = kinds == {"", "{}"} and bool(a.name) != bool(b.name)  # x = 1, x = 2 and 1, 2
    if x or kinds in _UNORDERED or tuples or named_set:
        return _same_set(a.items, b.items, in_form)
    ordered = len(kinds) == 1 or kinds <= {"", "{}"} or kinds <= {"", "&"}
    return ordered and all(same(p, q, in_form) for p, q in zip(a.items, b.items, strict=True))


def _names(value: Value) -> list[str]:
    """Return the names of all items if each has one of its own; else none."""
    names = [item.name for item in value.items]
    return names if all(names) and len(set(names)) == len(names) else []


def _in_order_of_names(a: Value, b: Value, in_form: bool) -> bool:
    """Equate ``x = 1, y = 2`` and ``1, 2``; also ``(1, 2)`` if the names are in alphabetical order."""
    names, bare = (_names(a), b) if _names(a) else (_names(b), a)
    in_order = bare.brackets in ("", "&") or (bare.brackets == "()" and names == sorted(names))
    if not in_order or bare.name or any(item.name for item in bare.items):
        return False
    unnamed = ([replace(item, name="") for item in side.items] for side in (a, b))
    return all(same(p, q, in_form) for p, q in zip(*unnamed, strict=True))


def _same_set(a: Sequence[Value], b: Sequence[Value], in_form: bool) -> bool:
    rest = list(b)
    for item in a:
        match = next((i for i, other in enumerate(rest) if same(item, other, in_form)), None)
        if match is None:
            return False
        del rest[match]
    return not rest


def _relation(value: Value) -> tuple[str, Formula, Formula] | None:
    """Return the relation of a value; a named formula is an equation."""
    if value.relation is None and value.name and value.tree is not None and not value.unit:
        name = parse(value.name)
        return None if name is None else ("=", name, value.tree)
    return value.relation


def _same_relation(a: Value, b: Value, in_form: bool) -> bool:
    """Tell whether the differences of both sides are the same, in either direction; in form, the sides themselves."""
    p, q = _relation(a), _relation(b)
    if p is None or q is None:
        return False
    turned = (q, (FLIPPED[q[0]], q[2], q[1]))
    if in_form:
        return any((p[0], arranged(p[1]), arranged(p[2])) == (r[0], arranged(r[1]), arranged(r[2])) for r in turned)
    difference = ("add", p[1], ("neg", p[2]))
    return any(p[0] == sign and algebra.equal(difference, ("add", x, ("neg", y))) for sign, x, y in turned)
