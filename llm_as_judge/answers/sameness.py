"""Equality of two typed values: symmetric and without tolerance.

Numbers are exact, except that a decimal of at least ``_FULL_PRECISION`` digits, as programs print one, may stand for
the number that it is correct for to the last digit. Names, units, order and brackets count if both sides have them; if
one side has none, the other side's must be the only possible ones.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from llm_as_judge.answers import algebra
from llm_as_judge.answers.formulas import Tree, exact, parse
from llm_as_judge.answers.values import FLIPPED, Value, as_fraction, rounds_to

_FULL_PRECISION = 15  # significant digits; fewer may be rounded
_CASELESS = re.compile(r"no|[a-z]{3,}(?: [a-z]+)*")
_DECIMAL = re.compile(r"[+-]?\d*\.\d+")
_OF_X = re.compile(r"[fgh]\([a-z]\)")
#: Sets of brackets, one of each side, whose items may come in any order.
_UNORDERED = ({"{}"}, {"{}", "±"}, {"±"}, {"∪"}, {"&", "±"}, {"&", "{}"}, {"", "±"})


def same(a: Value, b: Value) -> bool:
    if a.relation or b.relation:
        return _same_relation(a, b)
    if a.name and b.name and not _same_name(a.name, b.name):
        return False
    if a.items or b.items:
        return bool(a.items and b.items) and _same_items(a, b)
    if a.tree is not None and b.tree is not None:
        return _same_amount(a, b)
    if a.tree is not None or b.tree is not None or not a.text:
        return False
    x, y = a.text.lower(), b.text.lower()
    return a.text == b.text or (x == y and _CASELESS.fullmatch(x) is not None and a.text.isupper() == b.text.isupper())


def _same_name(a: str, b: str) -> bool:
    return a == b or (a == "y" and bool(_OF_X.fullmatch(b))) or (b == "y" and bool(_OF_X.fullmatch(a)))


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


def _printed(decimal: Value, tree: Tree) -> bool:
    """Whether a decimal of full precision is the value of ``tree``, rounded or cut off at its last place."""
    if decimal.number is None or not _DECIMAL.fullmatch(decimal.text):
        return False
    value = as_fraction(tree) if len(re.sub(r"\D", "", decimal.text).lstrip("0")) >= _FULL_PRECISION else None
    return value is not None and rounds_to(value, decimal.number, len(decimal.text.partition(".")[2]))


def _same_items(a: Value, b: Value) -> bool:
    if len(a.items) != len(b.items):
        return False
    x, y = _names(a), _names(b)
    if bool(x) != bool(y):
        return _in_order_of_names(a, b, x) if x else _in_order_of_names(b, a, y)
    kinds = {a.brackets, b.brackets}
    tuples = kinds <= {"", "&"} and all(item.brackets == "()" for item in (*a.items, *b.items))
    named_set = kinds == {"", "{}"} and bool(a.name) != bool(b.name)  # x = 1, x = 2 and 1, 2
    if x or kinds in _UNORDERED or tuples or named_set:
        return _same_set(a.items, b.items)
    return (len(kinds) == 1 or kinds <= {"", "{}"} or kinds <= {"", "&"}) and all(map(same, a.items, b.items))


def _names(value: Value) -> list[str]:
    """The names of all items if each has one of its own; else none."""
    names = [item.name for item in value.items]
    return names if all(names) and len(set(names)) == len(names) else []


def _in_order_of_names(named: Value, bare: Value, names: list[str]) -> bool:
    """``x = 1, y = 2`` and ``1, 2``; also ``(1, 2)`` if the names are in alphabetical order."""
    in_order = bare.brackets in ("", "&") or (bare.brackets == "()" and names == sorted(names))
    plain = not bare.name and not any(item.name for item in bare.items)
    return (
        in_order and plain and all(same(replace(p, name=""), q) for p, q in zip(named.items, bare.items, strict=True))
    )


def _same_set(a: Sequence[Value], b: Sequence[Value]) -> bool:
    rest = list(b)
    for item in a:
        match = next((i for i, other in enumerate(rest) if same(item, other)), None)
        if match is None:
            return False
        del rest[match]
    return not rest


def _relation(value: Value) -> tuple[str, Tree, Tree] | None:
    """The relation of a value; a named formula is an equation."""
    if value.relation is None and value.name and value.tree is not None and not value.unit:
        name = parse(value.name)
        return None if name is None else ("=", name, value.tree)
    return value.relation


def _same_relation(a: Value, b: Value) -> bool:
    """Whether the differences of both sides are the same, in either direction."""
    p, q = _relation(a), _relation(b)
    if p is None or q is None:
        return False
    difference = ("add", p[1], ("neg", p[2]))
    return any(
        p[0] == sign and algebra.equal(difference, ("add", left, ("neg", right)))
        for sign, left, right in (q, (FLIPPED[q[0]], q[2], q[1]))
    )
