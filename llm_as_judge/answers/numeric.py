"""Computing with formulas: bounded exact rational arithmetic, and floats that cheaply tell formulas apart."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from llm_as_judge.answers.expressions import Tree

_MOST_BITS = 4096


def symbols(tree: Tree) -> set[str]:
    """Free symbols, including functions that are only named."""
    if tree[0] in ("sym", "call"):
        found = {str(tree[1])}
        return found.union(*(symbols(part) for part in tree[2:]))
    return set().union(*(symbols(part) for part in tree[1:] if isinstance(part, tuple)))


def has_matrix(tree: Tree) -> bool:
    return tree[0] == "mat" or any(has_matrix(part) for part in tree[1:] if isinstance(part, tuple))


def exact(tree: Tree) -> Fraction | None:
    """The value of rational arithmetic; None for anything else, a division by zero or a giant number."""
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1])
    if kind not in ("add", "neg", "mul", "div", "pow", "root", "binom", "mod", "factorial", "abs"):
        return None
    parts = [exact(part) for part in tree[1:]]
    values = [part for part in parts if part is not None]
    if len(values) != len(parts):
        return None
    return _computed(kind, values)


def _computed(kind: str, values: list[Fraction]) -> Fraction | None:
    a, b = values[0], values[-1]
    result: Fraction | None = None
    if kind == "add":
        result = sum(values, Fraction())
    elif kind == "neg":
        result = -a
    elif kind == "abs":
        result = abs(a)
    elif kind == "mul":
        result = a * b
    elif kind == "div":
        result = a / b if b else None
    elif kind == "pow":
        small = b.denominator == 1 and abs(b) * max(a.numerator.bit_length(), a.denominator.bit_length()) <= _MOST_BITS
        result = Fraction(a ** int(b)) if small and (a or b > 0) else None
    elif kind == "root":
        result = _root(a, b)
    elif kind == "mod":
        result = a % b if b > 0 else None
    elif a.denominator == b.denominator == 1 and 0 <= b <= a <= 200 and kind == "binom":
        result = Fraction(math.comb(int(a), int(b)))
    elif a.denominator == 1 and 0 <= a <= 200 and kind == "factorial":
        result = Fraction(math.factorial(int(a)))
    if result is not None and max(result.numerator.bit_length(), result.denominator.bit_length()) > _MOST_BITS:
        return None
    return result


def _root(value: Fraction, degree: Fraction) -> Fraction | None:
    """The rational root, if there is one."""
    if value < 0 or degree.denominator != 1 or not 2 <= degree <= 12 or value > 10**30 or value.denominator > 10**30:
        return None
    found = [round(part ** (1 / int(degree))) for part in (value.numerator, value.denominator)]
    near = [
        next((n for n in (guess - 1, guess, guess + 1) if n >= 0 and n ** int(degree) == part), None)
        for guess, part in zip(found, (value.numerator, value.denominator), strict=True)
    ]
    return None if near[0] is None or not near[1] else Fraction(near[0], near[1])


_FLOAT_FUNCTIONS: Mapping[str, Any] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan, "exp": cmath.exp, "ln": cmath.log,
    "log": lambda x: 0.7310585786300049 * cmath.log(x),  # an arbitrary base: an identity must hold for any
    "sec": lambda x: 1 / cmath.cos(x), "csc": lambda x: 1 / cmath.sin(x), "cot": lambda x: 1 / cmath.tan(x),
}  # fmt: skip


def approximate(tree: Tree, at: Mapping[str, float]) -> complex | None:
    """The value with symbols as in ``at``; None if it has no float or a function is only named."""
    try:
        return _float(tree, at)
    except (ArithmeticError, ValueError, KeyError, TypeError):
        return None


def _float(tree: Tree, at: Mapping[str, float]) -> complex:
    kind = tree[0]
    if kind == "num":
        return complex(float(Fraction(tree[1])))
    if kind == "sym":
        return complex(at[tree[1]])
    if kind == "pi":
        return complex(math.pi)
    if kind == "fn":
        return complex(_FLOAT_FUNCTIONS[tree[1]](_float(tree[2], at)))
    if kind in ("mat", "call"):
        raise ValueError(f"no float for {kind}")
    parts = [_float(part, at) for part in tree[1:]]
    a, b = parts[0], parts[-1]
    if kind == "add":
        return sum(parts, 0j)
    if kind == "neg":
        return -a
    if kind == "mul":
        return a * b
    if kind == "div":
        return a / b
    if kind == "pow":
        return complex(a**b)
    if kind == "root":
        return complex(a ** (1 / b))
    if kind == "abs":
        return complex(abs(a))
    value = _computed(kind, [Fraction(round(part.real)) for part in parts])
    if value is None or any(part != round(part.real) for part in parts):
        raise ValueError(f"no float for {kind}")
    return complex(float(value))


def arranged(tree: Tree) -> Tree:
    """The formula with the parts of sums and products in canonical order; its form is otherwise kept."""
    kind = tree[0]
    if kind == "sym" or kind == "num" or kind == "pi":
        return tree
    if kind == "fn" or kind == "call":
        return (kind, tree[1], *(arranged(part) for part in tree[2:]))
    if kind == "mat":
        return (kind, *(tuple(arranged(cell) for cell in row) for row in tree[1:]))
    parts = [arranged(part) for part in tree[1:]]
    if kind in ("add", "mul"):
        flat = [inner for part in parts for inner in (part[1:] if part[0] == kind else (part,))]
        return (kind, *sorted(flat, key=repr))
    return (kind, *parts)


def numbers(tree: Tree) -> list[Fraction]:
    """All numbers written in a formula, in order."""
    if tree[0] == "num":
        return [Fraction(tree[1])]
    return [n for part in tree[1:] if isinstance(part, tuple) for n in numbers(part)]
