r"""Formulas in answers, LaTeX or plain: a strict parser, and bounded arithmetic on its trees.

``parse`` returns a tree of tuples, or None for anything it does not know: such a formula is left to the LLM judge.
"""

import cmath
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

#: ``("num", "3/4")``, ``("sym", "x")``, ``("pi",)``, ``("fn", "sin", tree)`` or an operation with its operands.
Formula = tuple[Any, ...]

_FUNCTIONS = frozenset("arcsin arccos arctan sinh cosh tanh sin cos tan sec csc cot log ln exp".split())
_GREEK = "alpha beta gamma delta epsilon varepsilon theta lambda mu nu rho sigma tau phi varphi omega Delta Omega"
_SYMBOLS = frozenset(f"\\{name}" for name in ("infty", *_GREEK.split()))
_CALLED = frozenset("fghPFGH")  # letters that are functions, not factors, before "("
_LONGEST = 400
_MOST_BITS = 4096
_TOKEN = re.compile(
    r"\s*(\d+\.?\d*|\.\d+|\\begin\{(?:[pbB]|small)?matrix\}|\\begin\{array\}(?:\{[^{}]*\})?|\\end\{\w+\}|\\[A-Za-z]+"
    r"|[A-Za-z]+|\*\*|\\\\|[-+*/^_(){}\[\]|!,&·×÷√π∞])"
)
_ALIASES = {
    "·": "*", "×": "*", "\\cdot": "*", "\\times": "*", "\\ast": "*", "÷": "/", "\\div": "/", "**": "^", "√": "\\sqrt",
    "\\lvert": "|", "\\rvert": "|", "\\vert": "|", "π": "\\pi", "∞": "\\infty", "oo": "\\infty", "inf": "\\infty",
    "infinity": "\\infty", "mod": "\\bmod", "\\mod": "\\bmod",
    **{name: f"\\{name}" for name in (*_FUNCTIONS, "sqrt", "pi", "infty", "binom", "frac")},
}  # fmt: skip
_CLOSE = {"(": ")", "{": "}", "[": "]"}


class _Unread(Exception):
    """The text is not a formula that this parser knows."""


def parse(text: str) -> Formula | None:
    """Parse ``text`` to a tree, or None. Words and lone letters in a row (``AB``, ``odd``) are not formulas."""
    text = text.strip()
    if len(text) > _LONGEST or (re.fullmatch(r"[A-Za-z\s]{2,}", text) and text not in _ALIASES):
        return None
    try:
        parser = _Parser(_tokens(text))
        tree = parser.sum()
        return tree if parser.peek() == "" else None
    except (_Unread, RecursionError):
        return None


def _tokens(text: str) -> list[str]:
    """Split into numbers, single letters, commands with their backslash and signs; an empty token at the end."""
    found: list[str] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _Unread
        place, token = match.end(), match.group(1)
        token = _ALIASES.get(token, token.partition("{")[0] or token)
        if token[0].isalpha() and len(token) > 3:
            raise _Unread
        found += token if token[0].isalpha() else [token]
    return [*found, ""]


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def peek(self) -> str:
        return self._tokens[self._place]

    def _next(self) -> str:
        token = self.peek()
        if not token:
            raise _Unread
        self._place += 1
        return token

    def _take(self, *wanted: str) -> str:
        """Take the next token if it is a wanted one, else an empty string."""
        return self._next() if self.peek() in wanted else ""

    def sum(self) -> Formula:
        parts = [self._product()]
        while sign := self._take("+", "-"):
            part = self._product()
            parts.append(part if sign == "+" else ("neg", part))
        return parts[0] if len(parts) == 1 else ("add", *parts)

    def _product(self) -> Formula:
        result = self._signed()
        while True:
            if self._take("*"):
                result = ("mul", result, self._signed())
            elif self._take("/"):
                result = ("div", result, self._signed())
                if self._starts_factor():  # 1/2x is ambiguous
                    raise _Unread
            elif self._take("\\bmod"):
                result = ("mod", result, self._signed())
            elif self._starts_factor():
                mixed = result[0] == "num" and self.peek() == "\\frac"
                apart = self._tokens[self._place - 1] == "!"
                if (self.peek()[0] in ".0123456789" and not apart) or mixed:  # "2 3", "x2", "(a) 3"; 3\frac{1}{2}
                    raise _Unread
                result = ("mul", result, self._power())
            else:
                return result

    def _starts_factor(self) -> bool:
        token = self.peek()
        return token != "" and (token[0].isalnum() or token[0] in ".({[\\") and token not in ("\\bmod", "\\end", "\\\\")

    def _signed(self) -> Formula:
        sign = self._take("-", "+")
        return ("neg", self._signed()) if sign == "-" else self._signed() if sign else self._power()

    def _power(self) -> Formula:
        base = self._factorial(self._atom())
        if not self._take("^"):
            return base
        if base[0] == "mat":
            raise _Unread
        return self._factorial(("pow", base, self._exponent()))

    def _factorial(self, tree: Formula) -> Formula:
        while self._take("!"):
            tree = ("factorial", tree)
        return tree

    def _exponent(self) -> Formula:
        if self.peek() == "{":
            return self._atom()
        if self._take("-"):
            return ("neg", self._exponent())
        base = self._factorial(self._atom())
        return ("pow", base, self._exponent()) if self._take("^") else base

    def _atom(self) -> Formula:
        token = self._next()
        if token in _CLOSE or token == "|":
            inner = self.sum()
            if self._next() != _CLOSE.get(token, "|"):
                raise _Unread
            return ("abs", inner) if token == "|" else inner
        if token[0] in ".0123456789" or token.isalpha() or token in _SYMBOLS:
            if self._take("_"):
                return ("sym", token.lstrip("\\") + "_" + self._subscript())
            if token in _CALLED and self.peek() == "(":
                raise _Unread
            return num(Fraction(token)) if token[0] in ".0123456789" else ("sym", token.lstrip("\\"))
        if token == "\\pi":
            return ("pi",)
        if token in ("\\frac", "\\binom"):
            return ("div" if token == "\\frac" else "binom", self._atom(), self._atom())
        if token == "\\sqrt":
            root: Formula = self._atom() if self.peek() == "[" else ("num", "2")
            return ("root", self._argument(), root)
        if token == "\\begin":
            return self._matrix()
        if token[1:] in _FUNCTIONS:
            return self._function(token[1:])
        raise _Unread

    def _subscript(self) -> str:
        parts = [self._next()]
        if parts == ["{"]:
            parts = list(iter(self._next, "}"))
        if not all(part[0].isalnum() or part in "+-," for part in parts):
            raise _Unread
        return "".join(parts)

    def _function(self, name: str) -> Formula:
        base = self._atom() if name == "log" and self._take("_") else None
        exponent = self._exponent() if self._take("^") else None
        if exponent is not None and exponent[0] == "neg":  # an inverse function or a power
            raise _Unread
        argument = self._argument()
        tree = ("fn", name, argument) if base is None else ("div", ("fn", "ln", argument), ("fn", "ln", base))
        return tree if exponent is None else ("pow", tree, exponent)

    def _argument(self) -> Formula:
        """Read an argument in brackets, or a product of numbers and letters: the ``2x`` of ``sin 2x``."""
        if self.peek() in ("(", "{"):
            return self._atom()
        tree = self._power()
        while self.peek().isalpha() or self.peek() == "\\pi":
            tree = ("mul", tree, self._power())
        if self.peek() == "/":  # sin x/2
            raise _Unread
        return tree

    def _matrix(self) -> Formula:
        rows: list[list[Formula]] = [[]]
        while not self._take("\\end"):
            if self._take("\\\\"):
                rows.append([])
            elif not self._take("&"):
                rows[-1].append(self.sum())
        rows = [row for row in rows if row]
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise _Unread
        return ("mat", *(("row", *row) for row in rows))


def nodes(tree: Formula) -> Iterator[Formula]:
    """Yield a tree and all trees in it, in order."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from nodes(part)


def symbols(tree: Formula) -> set[str]:
    return {node[1] for node in nodes(tree) if node[0] == "sym"}


def arranged(tree: Formula) -> Formula:
    """Arrange the parts of sums and products of a formula in canonical order; its form is otherwise kept.

    A factor is the same before, above or beside a fraction: ``\\frac{1}{2}x`` is ``\\frac{x}{2}``.
    """
    kind, *parts = tree
    parts = [arranged(part) if isinstance(part, tuple) else part for part in parts]
    if kind == "add":
        return (kind, *sorted((one for part in parts for one in (part[1:] if part[0] == kind else (part,))), key=repr))
    if kind not in ("neg", "mul", "div"):
        return (kind, *parts)
    signs, above, below = zip(*(part[1:] if part[0] == "product" else (1, (part,), ()) for part in parts), strict=True)
    if kind == "div":
        if below[0] or below[1]:  # a fraction in a fraction
            return (kind, *parts)
        above, below = above[:1], above[1:]
    sign = math.prod(signs) * (-1 if kind == "neg" else 1)
    factors = [sorted((f for part in side for f in part if f != ("num", "1")), key=repr) for side in (above, below)]
    alone = factors[0] if sign > 0 and len(factors[0]) == 1 and not factors[1] else None
    return alone[0] if alone else ("product", sign, tuple(factors[0]), tuple(factors[1]))


def num(value: Fraction) -> Formula:
    return ("num", str(value))


def exact(tree: Formula) -> Fraction | None:
    """Compute the value by rational arithmetic; None for anything else, a division by zero or a giant number."""
    try:
        value = _value(tree, {})
    except _NO_VALUE:
        return None
    return value if isinstance(value, Fraction) else None


def approximate(tree: Formula, at: Mapping[str, float]) -> complex | None:
    """Compute the value with symbols as in ``at``; None if it has no float."""
    try:
        return complex(_value(tree, at))
    except _NO_VALUE:
        return None


_NO_VALUE = (ArithmeticError, AttributeError, ValueError, KeyError, TypeError)


def _value(tree: Formula, at: Mapping[str, float]) -> Any:
    """Compute a ``Fraction`` as long as the arithmetic is rational, else a float or complex number."""
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1])
    if kind == "sym":
        return at[tree[1]]
    if kind == "pi":
        return math.pi
    if kind == "fn":
        return _FLOAT_FUNCTIONS[tree[1]](_value(tree[2], at))
    result = _OPERATIONS[kind](*(_value(part, at) for part in tree[1:]))
    if isinstance(result, Fraction) and max(map(int.bit_length, result.as_integer_ratio())) > _MOST_BITS:
        raise OverflowError("giant number")
    return result


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        if abs(exponent) * max(map(int.bit_length, base.as_integer_ratio())) > _MOST_BITS or base == exponent == 0:
            raise OverflowError("giant number, or 0^0")
        return Fraction(base ** int(exponent))
    return complex(base) ** complex(exponent)


def _root(value: Any, degree: Any) -> Any:
    """Return the rational root if there is one."""
    if isinstance(value, Fraction) and isinstance(degree, Fraction) and degree.denominator == 1 and 2 <= degree <= 12:
        parts = value.as_integer_ratio()
        found = [round(part ** (1 / int(degree))) for part in parts] if value >= 0 and max(parts) <= 10**15 else []
        if found and all(n ** int(degree) == part for n, part in zip(found, parts, strict=True)):
            return Fraction(*found)
    return complex(value) ** (1 / complex(degree))


def _whole(value: Fraction) -> int:
    if value.denominator != 1 or not 0 <= value <= 200:
        raise ValueError(f"{value} is not a small natural number")
    return int(value)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda *parts: sum(parts, Fraction()),
    "neg": lambda a: -a,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "abs": abs,
    "mod": lambda a, b: a % b,
    "pow": _power,
    "root": _root,
    "binom": lambda a, b: Fraction(math.comb(_whole(a), _whole(b))),
    "factorial": lambda a: Fraction(math.factorial(_whole(a))),
}
_FLOAT_FUNCTIONS: Mapping[str, Any] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan, "exp": cmath.exp, "ln": cmath.log,
    "log": lambda x: 0.7310585786300049 * cmath.log(x),  # an arbitrary base: an identity must hold for any
    "sec": lambda x: 1 / cmath.cos(x), "csc": lambda x: 1 / cmath.sin(x), "cot": lambda x: 1 / cmath.tan(x),
}  # fmt: skip
