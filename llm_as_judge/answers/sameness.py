"""Equality of two typed values: symmetric and without tolerance.

Numbers are exact, except that a decimal of at least ``_FULL_PRECISION`` digits, as programs print one, may stand for
the number that it is correct for to the last digit. Names, units, order and brackets count if both sides have them; if
one side has none, the other side's must be the only possible ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from llm_as_judge.answers import algebra
from llm_as_judge.answers.expressions import Tree, parse
from llm_as_judge.answers.numeric import approximate, symbols
from llm_as_judge.answers.values import Value, rounds_to

_FULL_PRECISION = 15  # significant digits; fewer may be rounded
_CASELESS = frozenset(("yes", "no", "true", "false", "even", "odd", "none"))
_WORDS = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]+)*")
_FLIPPED = {"=": "=", "≠": "≠", "<": ">", ">": "<", "≤": "≥", "≥": "≤"}
_OF_X = re.compile(r"[fgh]\([a-z]\)")
_INFINITE = Value("\\infty", tree=("sym", "infty"))
_MINUS_INFINITE = Value("-\\infty", tree=("neg", ("sym", "infty")))
#: Sets of brackets, one of each side, whose items may come in any order.
_UNORDERED = ({"{}"}, {"{}", "±"}, {"±"}, {"∪"}, {"&"}, {"&", "±"}, {"&", "{}"}, {"", "±"})


def same(a: Value, b: Value) -> bool:
    """Whether two values are the same."""
    if a.relation or b.relation:
        return _same_relation(a, b)
    if a.name and b.name and not _same_name(a.name, b.name):
        return False
    if a.number is not None and b.number is not None:
        return _same_number(a, b)
    if a.items or b.items:
        return bool(a.items and b.items) and _same_items(a, b)
    if a.unit or b.unit:
        unit, other = a.unit or b.unit, b.unit or a.unit
        assert unit and other
        silent = bool(a.unit and b.unit) or (unit.silent and unit.quantity != "$")
        comparable = silent and (unit.quantity, unit.size) == (other.quantity, other.size)
        return comparable and same(replace(a, unit=None), replace(b, unit=None))
    if a.shown is not None and a.shown == b.shown and None in (_tree(a), _tree(b)):
        return True  # one side says nothing else
    if a.shown is not None or b.shown is not None:
        if (said := _only_shown(a)) is not None and (other_shown := _only_shown(b)) is not None:
            return said == other_shown
        if _tree(a) is None or _tree(b) is None:
            return False
    x, y = _tree(a), _tree(b)
    if x is not None and y is not None:
        return algebra.equal(x, y) or _printed(a, y) or _printed(b, x)
    if a.number is not None or b.number is not None or not a.text or not b.text:
        return False
    if a.text == b.text:
        return True
    word = a.text.lower() == b.text.lower() and _WORDS.fullmatch(a.text) and a.text.isupper() == b.text.isupper()
    return bool(word) or (a.text.lower() == b.text.lower() and a.text.lower() in _CASELESS)


def _only_shown(value: Value) -> Fraction | None:
    """The decimal of a value that is given by nothing else."""
    if value.number is not None:
        return value.number if value.digits else None
    return value.shown if value.tree is None else None


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
        return a.number == b.number or _prints(a.number, b) or _prints(b.number, a)
    named, bare = (a, b) if a.unit else (b, a)
    assert named.number is not None and bare.number is not None
    if unit.quantity == "%":  # an integer next to a percentage may be meant in percent
        return named.number == bare.number and bare.number.denominator != 1
    return unit.silent and named.number / unit.size == bare.number


def _prints(value: Fraction, decimal: Value) -> bool:
    """Whether a decimal of full precision is ``value``, rounded or cut off at its last place."""
    if decimal.digits < _FULL_PRECISION or decimal.number is None or not decimal.number:
        return False
    return rounds_to(value, decimal.number, len(decimal.text.partition(".")[2]))


def _printed(decimal: Value, tree: Tree) -> bool:
    """``_prints`` for an irrational number, to the precision of a float."""
    if decimal.digits < _FULL_PRECISION or decimal.number is None or symbols(tree):
        return False
    value = approximate(tree, {})
    return value is not None and not value.imag and abs(value.real - float(decimal.number)) <= 4e-16 * abs(value.real)


def _same_items(a: Value, b: Value) -> bool:
    if {a.brackets, b.brackets} == {"|", "∪"}:
        a, b = (_union(side) if side.brackets == "|" else side for side in (a, b))
    if _joined_otherwise(a, b):
        return False
    a, b = (replace(side, brackets="&") if side.brackets == "|" else side for side in (_spread(a), _spread(b)))
    if len(a.items) != len(b.items):
        return False
    x, y = _names(a), _names(b)
    if x and y:
        by_name = dict(zip(y, b.items, strict=True))
        return set(x) == set(y) and all(same(item, by_name[name]) for name, item in zip(x, a.items, strict=True))
    if x or y:
        return _in_order_of_names(a, b) if x else _in_order_of_names(b, a)
    kinds = {a.brackets, b.brackets}
    tuples = kinds <= {"", "&"} and all(item.brackets == "()" for item in (*a.items, *b.items))
    named_set = kinds == {"", "{}"} and bool(a.name) != bool(b.name)  # x = 1, x = 2 and 1, 2
    if kinds in _UNORDERED or tuples or named_set:
        return _same_set(a.items, b.items)
    ordered = len(kinds) == 1 or kinds <= {"", "{}"} or kinds <= {"", "&"}
    if not ordered and "()" in kinds and kinds <= {"", "&", "()"}:
        ordered = len(a.items) > 2  # (1, 2) may be an interval
    return ordered and all(same(p, q) for p, q in zip(a.items, b.items, strict=True))


def _union(value: Value) -> Value:
    """``x < 2 or x > 3`` as the union of two intervals; anything else unchanged."""
    parts = [_interval(item) for item in value.items]
    intervals = [part for part in parts if part is not None]
    if len(intervals) != len(parts) or len({part.name for part in intervals}) != 1 or not intervals[0].name:
        return value
    return Value(value.text, intervals[0].name, items=tuple(replace(i, name="") for i in intervals), brackets="∪")


def _spread(value: Value) -> Value:
    """``(x, y) = (1, 2)`` as ``x = 1, y = 2``."""
    names = value.name.removeprefix("(").removesuffix(")").split(",")
    if value.brackets != "()" or len(names) != len(value.items) or len(names) < 2 or any(i.name for i in value.items):
        return value
    items = tuple(replace(item, name=name) for name, item in zip(names, value.items, strict=True))
    return replace(value, name="", items=items, brackets="")


def _names(value: Value) -> list[str]:
    """The names of all items if each has one of its own; else none."""
    names = [item.name for item in value.items]
    return names if all(names) and len(set(names)) == len(names) else []


def _in_order_of_names(named: Value, bare: Value) -> bool:
    """``x = 1, y = 2`` and ``1, 2``; also ``(1, 2)`` if the names are in alphabetical order."""
    names = [item.name for item in named.items]
    if bare.name or bare.brackets not in ("", "&", "()") or any(item.name for item in bare.items):
        return False
    return (names == sorted(names) or bare.brackets != "()") and all(
        same(replace(p, name=""), q) for p, q in zip(named.items, bare.items, strict=True)
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
    if value.relation is None and value.name and (tree := _tree(value)) is not None:
        name = parse(value.name)
        return None if name is None else ("=", name, tree)
    return value.relation


def _same_relation(a: Value, b: Value) -> bool:
    if (a.items or b.items) and (x := _interval(a)) is not None and (y := _interval(b)) is not None:
        return same(x, y)
    p, q = _relation(a), _relation(b)
    if p is None or q is None:
        return False
    for sign, left, right in (q, (_FLIPPED[q[0]], q[2], q[1])):
        if p[0] == sign and algebra.equal(p[1], left) and algebra.equal(p[2], right):
            return True
    signs = {p[0], q[0]}
    if len(signs) > 1 and signs not in ({"<", ">"}, {"≤", "≥"}):
        return False
    factor = algebra.factor(("add", p[1], ("neg", p[2])), ("add", q[1], ("neg", q[2])))
    if factor is None:
        return False
    return p[0] in "=≠" or (factor > 0) == (p[0] == q[0])


def _interval(value: Value) -> Value | None:
    """``x ≥ 0`` as an interval; an interval unchanged."""
    if value.relation is None:
        return value if value.brackets in ("()", "[)", "(]", "[]") else None
    sign, left, right = value.relation
    if right[0] == "sym" and right[1] != "infty":
        sign, left, right = _FLIPPED[sign], right, left
    if left[0] != "sym" or sign not in "<>≤≥" or left[1] in symbols(right):
        return None
    end = Value(value.text, tree=right)
    up = sign in ">≥"
    brackets = {">": "()", "≥": "[)", "<": "()", "≤": "(]"}[sign]
    items = (end, _INFINITE) if up else (_MINUS_INFINITE, end)
    return Value(value.text, name=str(left[1]), items=items, brackets=brackets)


def _joined_otherwise(a: Value, b: Value) -> bool:
    """``x < 1 or x > 3`` against ``x < 1 and x > 3``; ``x = 1 or y = 2`` against ``x = 1, y = 2``."""
    if (a.brackets == "|") == (b.brackets == "|"):
        return False
    items = (*a.items, *b.items)
    both = "&" in (a.brackets, b.brackets)
    return len({item.name for item in items}) > 1 or (both and any(item.relation for item in items))
