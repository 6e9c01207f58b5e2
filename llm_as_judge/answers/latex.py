r"""Notation without meaning taken away: spacing, font and size commands, math delimiters, variants of one sign."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST_KEPT = 500  # characters of a text whose clean form is remembered
_TEXT = r"text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|operatorname|mathcal|mathsf|boldsymbol"
_RELATIONS = (
    (r"\\(?:leq|leqslant|le)(?![A-Za-z])|≤|<=", "≤"),
    (r"\\(?:geq|geqslant|ge)(?![A-Za-z])|≥|>=", "≥"),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:neq|ne)(?![A-Za-z])|\\not\s*=|!=", "≠"),
    (r"\\approx(?![A-Za-z])|\\simeq(?![A-Za-z])", "≈"),
    (r"\\in(?![A-Za-z])", "∈"),
    (r"\\(?:cup|bigcup)(?![A-Za-z])", "∪"),
    (r"\\pm(?![A-Za-z])", "±"),
)
# a reply that was escaped once too often; "\\\\" before another command is a new line
_DOUBLED = re.compile(
    r"(?<!\\)\\\\(?=(?:left|right|[dtc]?frac|sqrt|pi|le|ge|leq|geq|infty|boxed|cup|text|pm)(?![A-Za-z]))"
)
_TIMES_TEN = re.compile(r"(?<=\d) ?[xX×] ?(?=10\^)")
_QUOTED = re.compile(r"\"[^\"]+\"|'[^']+'|\u201c[^\u201d]+\u201d|\u2018[^\u2019]+\u2019")
_MATH_NUMBER = re.compile(r"(?<![\w\\$])\$(-?[\d.,]+|-?\\d?frac\{?\d+\}?\{?\d+\}?)\$(?![\w$])")


def clean(text: str) -> str:
    """``text`` in one notation; spaces survive, because ``1, 234`` is not ``1,234``."""
    return _clean(text) if len(text) > _LONGEST_KEPT else _cleaned(text)


@lru_cache(maxsize=8192)
def _cleaned(text: str) -> str:
    return _clean(text)


def _clean(text: str) -> str:
    text = _DOUBLED.sub(r"\\", text.replace("\u2212", "-").replace("\u00a0", " "))
    text = re.sub(r"(?<=\d)\s*\{\s*,\s*\}\s*(?=\d{3}(?!\d))", ",", text).replace("{,}", ",").strip().strip("*` ")
    text = re.sub(r",\\!\s*", ",", text).replace("\\!", "")
    text = re.sub(r"(?<=\d)\\,(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|limits)(?![A-Za-z])", "", text)
    text = re.sub(rf"\\(?:{_TEXT})\s*\{{([^{{}}]*)\}}", r" \1 ", text).strip()
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"\\frac\s?\{([^{}]*)\}\s?(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(?<=\d)\s?\^\s?\{\s?(?:st|nd|rd|th)\s?\}", "", text)
    text = re.sub(r"\\sqrt\s*(\d)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})|\\degree(?![A-Za-z])|º", "°", text)
    text = unwrap(text)
    text = re.sub(r"(?<!\\)\\(?:[,;: ]|q?quad)|(?<!~)~(?!~)", " ", text)
    text = _MATH_NUMBER.sub(r"\1", text.replace("\\%", "%").replace("\\$", "$")).strip()
    for pattern, sign in _RELATIONS:
        text = re.sub(pattern, sign, text)
    text = " ".join(text.replace(" ^", "^").split())
    text = _TIMES_TEN.sub(r"\\times ", text.removeprefix("=").lstrip())
    if _QUOTED.fullmatch(text):
        text = text[1:-1].strip()
    text = text[:-1].rstrip() if text.endswith((".", "。")) else text
    return text[:-1] if text.endswith("\\") and not text.endswith("\\\\") else text


def unwrap(text: str) -> str:
    """Without one pair of math delimiters around the whole."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner.strip():
            plain = inner.replace("\\$", "")
            if "$" not in plain and opening not in plain:
                return inner.strip()
    return text


def tight(text: str) -> str:
    """Spaces removed except between two letters or digits; ``^{2}`` as ``^2``."""
    text = re.sub(r"([_^])\s*\{\s*(\w)\s*\}", r"\1\2", text)
    text = " ".join(text.split())
    return re.sub(r" (?!\w)|(?<!\w) ", "", text)
