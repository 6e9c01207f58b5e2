r"""Text of answers in one notation (``clean``), and the exact values of written numbers (``number``)."""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

_TEXT = r"text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|operatorname|mathcal|mathsf|boldsymbol"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SIGNS = {
    "≤": "leq leqslant le <=", "≥": "geq geqslant ge >=", "<": "lt", ">": "gt", "≠": r"neq ne \not= !=",
    "≈": "approx simeq", "∈": "in", "∪": "cup bigcup", "±": "pm",
}  # fmt: skip
#: Pattern and replacement, applied in this order.
_RULES = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        # a reply that was escaped once too often; "\\" before another command is a new line
        (r"(?<!\\)\\\\(?=(?:left|right|[dtc]?frac|sqrt|pi|leq?|geq?|infty|boxed|cup|text|pm)(?![A-Za-z]))", r"\\"),
        (r"\{,\}", ","),
        (r",\\! ?", ","),
        (r"\\!", ""),
        (r"(?<=\d)\\,(?=\d{3}(?!\d))", ""),
        (r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|limits)(?![A-Za-z])", ""),
        (rf"\\(?:{_TEXT}) ?\{{([^{{}}]*)\}}", r" \1 "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac ?(\d) ?(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac ?(\d) ?\{", r"\\frac{\1}{"),
        (r"\\frac ?\{([^{}]*)\} ?(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac ?\{-(\d+)\}", r"-\\frac{\1}"),
        (r"(?<![A-Za-z\\])C\((\d+), ?(\d+)\)", r"\\binom{\1}{\2}"),
        (r"\\sqrt ?(\d)", r"\\sqrt{\1}"),
        (r"\^ ?(?:\\circ(?![A-Za-z])|\{ ?\\circ ?\})|\\degree(?![A-Za-z])|º", "°"),
        (r"(?<!\\)\\(?:[,;: ]|q?quad)|(?<=[^\s~])~(?!~)", " "),
        (r"\\([%$])", r"\1"),
        *(
            ("|".join(rf"\\{name}(?![A-Za-z])" if name.isalpha() else re.escape(name) for name in names.split()), sign)
            for sign, names in _SIGNS.items()
        ),
        (r" \^", "^"),
        (r"(?<=\d)(?:\.\.\.|\\l?dots)", "\u2026"),
        (r"(?<=\d) ?[xX×] ?(?=10\^)", r"\\times "),
    )
)
_CLOCK = re.compile(r"(?:(?<=:\d\d) ?([ap])\.? ?m|(?<=\d) ?([ap])\. ?m)(?![A-Za-z])\.?", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]+\"|'[^']+'|\u201c[^\u201d]+\u201d|\u2018[^\u2019]+\u2019")
_MATH_NUMBER = re.compile(r"(?<![\w\\$])\$(-?[\d.,]+|-?\\frac\{\d+\}\{\d+\})\$(?![\w$])")


@lru_cache(maxsize=1024)
def clean(text: str) -> str:
    """Write ``text`` in one notation; single spaces survive because ``1, 234`` is not ``1,234``."""
    text = " ".join(_ascii(text).split()).strip("*` ")
    text = unwrap(text)
    for pattern, new in _RULES:
        text = pattern.sub(new, text)
    text = _CLOCK.sub(lambda found: f" {found[1] or found[2]}m".upper(), text)
    text = _MATH_NUMBER.sub(r"\1", unwrap(" ".join(text.split())))
    text = " ".join(text.split()).removeprefix("=").lstrip()
    if _QUOTED.fullmatch(text):
        text = text[1:-1].strip()
    text = text[:-1].rstrip() if text.endswith((".", "。")) else text
    return text[:-1] if text.endswith("\\") and not text.endswith("\\\\") else text


def _ascii(text: str) -> str:
    """Write Unicode minus, exponents and fractions as ``-``, ``^{2}`` and ``\\frac{1}{2}``."""
    if text.isascii():
        return text
    text = text.replace("\u2212", "-").replace("\u2013", "-").replace("\u00a0", " ")
    text = re.sub(r"[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]+", lambda run: f"^{{{run.group().translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub(r"[¼½¾⅐-⅞]", lambda sign: rf"\frac{{{unicodedata.normalize('NFKC', sign.group())}}}", text)
    return re.sub(r"(\{\d+)\u2044(?=\d+\})", r"\1}{", text)


def unwrap(text: str) -> str:
    """Remove one pair of math delimiters around the whole."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner.strip():
            plain = inner.replace("\\$", "")
            if "$" not in plain and opening not in plain:
                return inner.strip()
    return text


def tight(text: str) -> str:
    """Remove spaces except between two letters or digits; write ``^{2}`` as ``^2``."""
    text = re.sub(r"([_^]) ?\{ ?(\w) ?\}", r"\1\2", " ".join(text.split()))
    return re.sub(r" (?!\w)|(?<!\w) ", "", text)


_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
_NUMBER = re.compile(rf"[+-]?{_DIGITS}(?:[eE][+-]?\d{{1,3}})?")
_RATIO = re.compile(rf"([+-]?)(?:\\frac\{{({_DIGITS})\}}\{{({_DIGITS})\}}|({_DIGITS})\s*/\s*({_DIGITS}))")
_MIXED = re.compile(r"([+-]?)(\d+)(?:\s*\\frac\{(\d+)\}\{(\d+)\}|\s+(\d+)/(\d+))")
_REPEATING = re.compile(r"([+-]?)(\d+)\.(\d*)\\(?:overline|bar)\{(\d+)\}")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_TO_99 = [*_SMALL, *(f"{ten} {one}".removesuffix(" zero") for ten in _TENS for one in _SMALL[:10])]
_WORDS = {word: i for i, word in enumerate(_TO_99)}
SCALES = {"billion": 10**9, "million": 10**6, "thousand": 1000, "hundred": 100, "dozen": 12}  # largest first
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
_ORDINALS += [f"{word}th" for word in _SMALL[13:]] + ["twentieth"]
#: "3rd" for "third".
ORDINALS = {word: f"{i}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(i, 'th') }" for i, word in enumerate(_ORDINALS, 1)}
_LONGEST = 300  # int() refuses 4,300 digits; longer ones are not answers


def number(text: str) -> Fraction | None:
    """Read the exact number in ``text`` (as returned by ``clean``): digits, a fraction, a mixed number or words."""
    if not text or len(text) > _LONGEST:
        return None
    if _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if found := _REPEATING.fullmatch(text):
        sign, whole, first, period = found.groups()
        shifted = int(whole + first) + Fraction(int(period), 10 ** len(period) - 1)
        return _signed(sign, shifted / 10 ** len(first))
    if found := _MIXED.fullmatch(text):
        sign, whole, *parts = found.groups()
        above, below = (Fraction(part) for part in parts if part is not None)
        return _signed(sign, int(whole) + above / below) if 0 < above < below else None
    if found := _RATIO.fullmatch(text):
        sign, *parts = found.groups()
        above, below = (Fraction(part.replace(",", "")) for part in parts if part is not None)
        return _signed(sign, above / below) if below else None
    words = text.lower().replace("-", " ")
    if words.startswith("negative ") and (value := number(words.removeprefix("negative "))) is not None:
        return -value
    for scale, size in SCALES.items():
        amount, named, rest = words.partition(f" {scale}")
        rest = rest.removeprefix(" and").strip()
        if named and (times := number(amount)) is not None:  # two thousand and one
            added = number(rest) if rest else Fraction(0)
            return None if added is None or not added < size or re.search(r"\d", rest) else times * size + added
    return Fraction(_WORDS[words]) if words in _WORDS else None


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value
