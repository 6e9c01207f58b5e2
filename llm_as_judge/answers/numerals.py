r"""Exact values of written numbers: digits, fractions, mixed numbers, scientific notation and words."""

from __future__ import annotations

import re
from fractions import Fraction

DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
_PLAIN = re.compile(rf"[+-]?{DIGITS}")
_POWER_OF_TEN = re.compile(rf"([+-]?{DIGITS})[eE]([+-]?\d{{1,3}})")
_RATIO = re.compile(rf"([+-]?{DIGITS})\s*/\s*({DIGITS})")
_FRAC = re.compile(rf"([+-]?)\\frac\{{([+-]?{DIGITS})\}}\{{([+-]?{DIGITS})\}}")
_MIXED = re.compile(r"([+-]?)(\d+)(?:\s*\\frac\{(\d+)\}\{(\d+)\}|\s+(\d+)/(\d+))")
_REPEATING = re.compile(r"([+-]?)(\d+)\.(\d*)\\(?:overline|bar)\{(\d+)\}")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()
_TENS = "thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 3)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
_LONGEST = 300  # int() refuses 4,300 digits; longer ones are not answers


def number(text: str) -> Fraction | None:
    """The exact number in ``text`` (as returned by ``latex.clean``): digits, a fraction or words."""
    if len(text) > _LONGEST:
        return None
    if (value := amount(text)) is not None:
        return value
    if found := _REPEATING.fullmatch(text):
        return _repeating(*found.groups())
    if found := _FRAC.fullmatch(text):
        sign, above, below = found.groups()
    elif found := _RATIO.fullmatch(text):
        sign, above, below = "", *found.groups()
    else:
        return None
    divisor = _plain(below)
    if not divisor:
        return None
    value = _plain(above) / divisor
    return -value if sign == "-" else value


def _repeating(sign: str, whole: str, first: str, period: str) -> Fraction:
    """``0.1\\overline{6}`` as 1/6."""
    fixed = Fraction(int(whole + first), 10 ** len(first))
    value = fixed + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(first))
    return -value if sign == "-" else value


def amount(text: str) -> Fraction | None:
    """``number``, but not for ``9/11``, which may be a date, a score or a ratio."""
    if len(text) > _LONGEST:
        return None
    if _PLAIN.fullmatch(text):
        return _plain(text)
    if found := _POWER_OF_TEN.fullmatch(text):
        return _plain(found.group(1)) * Fraction(10) ** int(found.group(2))
    if found := _MIXED.fullmatch(text):
        sign, whole, *parts = found.groups()
        above, below = (int(part) for part in parts if part is not None)
        if 0 < above < below:
            value = int(whole) + Fraction(above, below)
            return -value if sign == "-" else value
    return _in_words(text)


def _plain(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def _in_words(text: str) -> Fraction | None:
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
            part = _plain(word)
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
