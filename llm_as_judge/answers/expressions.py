r"""Strict parser for the formulas in answers, LaTeX or plain.

``parse`` returns a tree of tuples, or None for anything it does not know: such a formula is left to the LLM judge.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

#: ``("num", "3/4")``, ``("sym", "x")``, ``("mat", ((tree, ...), ...))`` or an operation with its operands.
Tree = tuple[Any, ...]

_FUNCTIONS = frozenset("arcsin arccos arctan sqrt sinh cosh tanh sin cos tan sec csc cot log ln exp".split())
_GREEK = "alpha beta gamma delta epsilon varepsilon theta lambda mu nu rho sigma tau phi varphi omega Delta Omega"
_SYMBOLS = {"pi", "infty", *_GREEK.split()}
_CALLED = frozenset("fghPFGH")  # letters that are functions, not factors, before "("
_LONGEST = 400
_TOKEN = re.compile(
    r"\s*(?:(?P<num>\d+\.?\d*|\.\d+)"
    r"|\\(?P<cmd>[A-Za-z]+)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<op>\*\*|[-+*/^_(){}\[\]|!,&·×÷√π∞]|\\\\))"
)
_ALIASES = {"·": "*", "×": "*", "÷": "/", "**": "^"}
_COMMANDS = {"cdot": "*", "times": "*", "ast": "*", "div": "/", "lvert": "|", "rvert": "|", "vert": "|"}
_MATRICES = ("pmatrix", "bmatrix", "matrix", "smallmatrix", "Bmatrix")
_CLOSE = {"(": ")", "{": "}", "[": "]"}
_WORD_OPERATORS = {"bmod", "mod"}


class _Unread(Exception):
    """The text is not a formula that this parser knows."""


def parse(text: str) -> Tree | None:
    """The tree of ``text``, or None. Words and lone letters in a row (``AB``, ``odd``) are not formulas."""
    text = text.strip()
    if len(text) > _LONGEST or (re.fullmatch(r"[A-Za-z\s]{2,}", text) and text not in ("pi", "infty")):
        return None
    try:
        parser = _Parser(_tokens(text))
        tree = parser.sum()
        return tree if parser.done() else None
    except (_Unread, RecursionError):
        return None


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _Unread
        place = match.end()
        kind, value = str(match.lastgroup), match.group(str(match.lastgroup))
        if kind == "word":
            found += _word(value)
        elif kind == "cmd":
            if value in ("begin", "end"):
                name = re.match(r"\{(\w+)\*?\}(?:\{[^{}]*\})?" if value == "begin" else r"\{(\w+)\*?\}", text[place:])
                if name is None or name.group(1) not in (*_MATRICES, "array"):
                    raise _Unread
                found.append((value, name.group(1)))
                place += name.end()
            else:
                found.append(("op", _COMMANDS[value]) if value in _COMMANDS else ("cmd", value))
        elif value in ("√", "π", "∞"):
            found.append(("cmd", {"√": "sqrt", "π": "pi", "∞": "infty"}[value]))
        else:
            found.append((kind, _ALIASES.get(value, value)))
    return found


def _word(word: str) -> list[tuple[str, str]]:
    """A run of letters as a function name or as one-letter factors. Raises ``_Unread`` for other words."""
    if word in _FUNCTIONS or word in ("pi", "binom", "frac") or word in _WORD_OPERATORS:
        return [("cmd", word)]
    if word in ("oo", "inf", "infinity"):
        return [("cmd", "infty")]
    if len(word) > 3:
        raise _Unread
    return [("sym", letter) for letter in word]


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0

    def done(self) -> bool:
        return self._place == len(self._tokens)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._place += 1
        return token

    def _take(self, value: str) -> bool:
        if self._peek() == ("op", value):
            self._place += 1
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._take(value):
            raise _Unread

    def sum(self) -> Tree:
        parts = [self._product()]
        while self._peek() in (("op", "+"), ("op", "-")):
            _, sign = self._next()
            part = self._product()
            parts.append(part if sign == "+" else ("neg", part))
        return parts[0] if len(parts) == 1 else ("add", *parts)

    def _product(self) -> Tree:
        result = self._signed()
        while True:
            if self._take("*"):
                result = ("mul", result, self._signed())
            elif self._take("/"):
                # 1/2x is ambiguous
                below = self._signed()
                if self._starts_factor():
                    raise _Unread
                result = ("div", result, below)
            elif self._peek() in (("cmd", "bmod"), ("cmd", "mod")):
                self._next()
                result = ("mod", result, self._signed())
            elif self._starts_factor():
                mixed = result[0] == "num" and self._peek() == ("cmd", "frac")
                if self._peek()[0] == "num" or mixed:  # "2 3", "x2"; 3\frac{1}{2} is no product
                    raise _Unread
                result = ("mul", result, self._power())
            else:
                return result

    def _starts_factor(self) -> bool:
        kind, value = self._peek()
        if kind == "op":
            return value in "({["
        if kind == "cmd":
            return value not in _WORD_OPERATORS
        return kind in ("num", "sym", "begin")

    def _signed(self) -> Tree:
        if self._take("-"):
            return ("neg", self._signed())
        if self._take("+"):
            return self._signed()
        return self._power()

    def _power(self) -> Tree:
        base = self._factorial(self._atom())
        if self._take("^"):
            if base[0] == "mat":
                raise _Unread
            return self._factorial(("pow", base, self._exponent()))
        return base

    def _factorial(self, tree: Tree) -> Tree:
        while self._take("!"):
            tree = ("factorial", tree)
        return tree

    def _exponent(self) -> Tree:
        if self._take("{"):
            inner = self.sum()
            self._expect("}")
            return inner
        if self._take("-"):
            return ("neg", self._exponent())
        base = self._factorial(self._atom())
        return ("pow", base, self._exponent()) if self._take("^") else base

    def _braced(self) -> Tree:
        """``{...}`` or, as in LaTeX, the next single token."""
        if self._take("{"):
            inner = self.sum()
            self._expect("}")
            return inner
        kind, value = self._peek()
        if kind == "num" and value.isdigit() and len(value) > 1:
            self._tokens[self._place : self._place + 1] = [("num", value[0]), ("num", value[1:])]
        if kind == "cmd" and value not in _SYMBOLS:
            raise _Unread
        return self._atom()

    def _atom(self) -> Tree:
        kind, value = self._next()
        if kind == "num":
            if self._take("_"):
                return ("sym", f"{value}_{self._subscript()}")
            return ("num", str(Fraction(value)))
        if kind == "sym":
            return self._symbol(value)
        if kind == "begin":
            return self._matrix(value)
        if kind == "cmd":
            return self._command(value)
        if kind == "op" and value in _CLOSE:
            inner = self.sum()
            self._expect(_CLOSE[value])
            return inner
        if kind == "op" and value == "|":
            inner = self.sum()
            self._expect("|")
            return ("abs", inner)
        raise _Unread

    def _symbol(self, letter: str) -> Tree:
        if self._take("_"):
            letter = f"{letter}_{self._subscript()}"
        if letter in _CALLED and self._take("("):
            arguments = [self.sum()]
            while self._take(","):
                arguments.append(self.sum())
            self._expect(")")
            return ("call", letter, *arguments)
        return ("sym", letter)

    def _subscript(self) -> str:
        if not self._take("{"):
            kind, value = self._next()
            if kind not in ("num", "sym"):
                raise _Unread
            return value
        parts = []
        while not self._take("}"):
            kind, value = self._next()
            if kind not in ("num", "sym") and value not in ("+", "-", ","):
                raise _Unread
            parts.append(value)
        return "".join(parts)

    def _command(self, name: str) -> Tree:
        if name in _SYMBOLS:
            return ("pi",) if name == "pi" else self._symbol(name)
        if name == "frac":
            return ("div", self._braced(), self._braced())
        if name == "binom":
            return ("binom", self._braced(), self._braced())
        if name == "sqrt":
            root: Tree = ("num", "2")
            if self._take("["):
                root = self.sum()
                self._expect("]")
            return ("root", self._argument(), root)
        if name in _FUNCTIONS:
            return self._function(name)
        raise _Unread

    def _function(self, name: str) -> Tree:
        base = exponent = None
        if name == "log" and self._take("_"):
            base = self._braced()
        if self._take("^"):
            exponent = self._exponent()
            if exponent[0] == "neg":  # an inverse function or a power
                raise _Unread
        argument = self._argument()
        tree: Tree = ("fn", name, argument)
        if base is not None:
            tree = ("div", ("fn", "ln", argument), ("fn", "ln", base))
        return tree if exponent is None else ("pow", tree, exponent)

    def _argument(self) -> Tree:
        """An argument in brackets, or a product of numbers and letters: the ``2x`` of ``sin 2x``."""
        kind, value = self._peek()
        if kind == "op" and value in "({":
            self._next()
            inner = self.sum()
            self._expect(_CLOSE[value])
            return inner
        tree = self._power()
        while self._peek()[0] == "sym" or self._peek() == ("cmd", "pi"):
            tree = ("mul", tree, self._power())
        if self._peek() == ("op", "/"):  # sin x/2
            raise _Unread
        return tree

    def _matrix(self, name: str) -> Tree:
        rows: list[list[Tree]] = [[]]
        while True:
            if self._peek()[0] == "end" and self._peek()[1] == name:
                self._next()
                break
            if self._take("\\\\"):
                rows.append([])
                continue
            if self._take("&"):
                continue
            rows[-1].append(self.sum())
        rows = [row for row in rows if row]
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise _Unread
        return ("mat", *(tuple(row) for row in rows))
