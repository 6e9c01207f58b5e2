r"""Answers as text: where one stands in a reply, and when two are the same.

``equivalent`` compares *typed values* (exact rationals, percentages, money, degrees, tuples, text) and never
applies a tolerance: it may refuse two equal answers, it must not accept two different ones.
``extract_answer`` returns the whole text whenever no single answer stands out (hedges, lists, fragments of a
formula), so that what it cannot read is left to the LLM judge. No algebra is done: ``x+1`` is not ``1+x``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from llm_as_judge.types import Domain

# --- typed values ---

_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
_PLAIN = re.compile(rf"[+-]?{_DIGITS}")
_RATIO = re.compile(rf"([+-]?{_DIGITS})\s*/\s*({_DIGITS})")
_FRAC = re.compile(rf"([+-]?)\\frac\{{([+-]?{_DIGITS})\}}\{{([+-]?{_DIGITS})\}}")
_MIXED = re.compile(r"([+-]?)(\d+)(?:\s*\\frac\{(\d+)\}\{(\d+)\}|\s+(\d+)/(\d+))")
_MONEY = re.compile(r"([+-]?)\s*([$€£¥])\s*([^$€£¥]+)|([^$€£¥]+?)\s*([€£¥$])")
_UNITS = (
    (re.compile(r"\s*(?:%|\bpercent|\bpercentage|\bper cent|\bpct)$", re.IGNORECASE), "%"),
    (re.compile(r"\s*(?:°|\bdegrees?)$", re.IGNORECASE), "°"),
    (re.compile(r"\s*\b(?:dollars?|USD)$", re.IGNORECASE), "$"),
)
_CURRENCIES = frozenset("$€£¥")
# fmt: off
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)
_TENS = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# fmt: on
_WORDS = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 3)}
_LONGEST_NUMBER = 300  # int() refuses 4,300 digits; nothing this long is an answer
_CASELESS = frozenset(("yes", "no", "true", "false", "even", "odd", "none"))
_CLOSING = {"(": ")]", "[": ")]", "{": "}"}


@dataclass(frozen=True, slots=True)
class _Value:
    """``number`` with ``unit``, or ``items`` between ``brackets``, or ``text``: the first that applies."""

    text: str
    number: Fraction | None = None
    unit: str = ""
    items: tuple[_Value, ...] = ()
    brackets: str = ""


def _strip_latex(text: str) -> str:
    """Notation without meaning removed; spaces survive, because ``1, 234`` is not ``1,234``."""
    text = text.replace("\u2212", "-").replace("\u00a0", " ").replace("{,}", ",").strip().strip("*` ")
    text = re.sub(r",\\!\s*", ",", text).replace("\\!", "")
    text = re.sub(r"(?<=\d)\\,(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", text)
    text = re.sub(r"\\(?:text|textbf|textit|textnormal|mathrm|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"\\sqrt\s*(\d)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})|\\degree(?![A-Za-z])", "°", text)
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = text[len(opening) : -len(closing)]
        if (
            text.startswith(opening)
            and text.endswith(closing)
            and inner.strip()
            and "$" not in inner.replace("\\$", "")
        ):
            text = inner
            break
    text = re.sub(r"\\(?:[,;: ]|quad(?![A-Za-z]))|~", " ", text)
    text = text.replace("\\%", "%").replace("\\$", "$").strip()
    return text[:-1].rstrip() if text.endswith((".", "。")) else text


def _number(text: str) -> Fraction | None:
    if len(text) > _LONGEST_NUMBER:
        return None
    if _PLAIN.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if found := _MIXED.fullmatch(text):
        sign, whole, *parts = found.groups()
        above, below = (int(part) for part in parts if part is not None)
        if 0 < above < below:
            value = int(whole) + Fraction(above, below)
            return -value if sign == "-" else value
    if found := _FRAC.fullmatch(text):
        sign, above_text, below_text = found.groups()
    elif found := _RATIO.fullmatch(text):
        sign, above_text, below_text = "", *found.groups()
    else:
        return _number_word(text)
    divisor = Fraction(below_text.replace(",", ""))
    if not divisor:
        return None
    value = Fraction(above_text.replace(",", "")) / divisor
    return -value if sign == "-" else value


def _number_word(text: str) -> Fraction | None:
    tens, _, ones = text.lower().partition("-")
    if tens not in _WORDS:
        return None
    if not ones:
        return Fraction(_WORDS[tens])
    if _WORDS[tens] < 20 or ones not in _SMALL[1:10]:
        return None
    return Fraction(_WORDS[tens] + _WORDS[ones])


def _split_list(text: str) -> list[str]:
    """Split at commas outside brackets; one part when brackets do not close or there is no such comma."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return [text]
        elif char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if depth == 0 else [text]


def _value(text: str) -> _Value:
    """Read ``text`` as the first type that fits."""
    plain = _strip_latex(text)
    if (number := _number(plain)) is not None:
        return _Value(plain, number)
    for pattern, unit in _UNITS:
        if (found := pattern.search(plain)) and (number := _number(_strip_latex(plain[: found.start()]))) is not None:
            return _Value(plain, number, unit)
    if found := _MONEY.fullmatch(plain):
        sign, before, amount, other, after = found.groups()
        number = _number((amount or other).strip())
        if number is not None:
            return _Value(plain, -number if sign == "-" else number, before or after)
    body, brackets = plain.replace("\\{", "{").replace("\\}", "}"), ""
    if len(body) > 2 and body[0] in _CLOSING and body[-1] in _CLOSING[body[0]]:
        inner = body[1:-1]
        parts = _split_list(inner)
        if len(parts) == 1 and body[0] + body[-1] == "()" and "(" not in inner and ")" not in inner:
            return _value(inner)
        body, brackets = inner, body[0] + body[-1]
    parts = _split_list(body)
    if (brackets or len(parts) > 1) and all(parts) and _balanced(body):
        return _Value(plain, items=tuple(_value(part) for part in parts), brackets=brackets)
    return _Value(_tight(plain))


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _tight(text: str) -> str:
    """Spaces removed except between two letters or digits; ``^{2}`` as ``^2``."""
    text = re.sub(r"([_^])\s*\{\s*(\w)\s*\}", r"\1\2", text)
    text = " ".join(text.split())
    return re.sub(r" (?!\w)|(?<!\w) ", "", text)


def _same(a: _Value, b: _Value) -> bool:
    if a.number is not None or b.number is not None:
        if a.number != b.number:
            return False
        units = {a.unit, b.unit}
        return len(units) == 1 or ("" in units and bool(units & _CURRENCIES))
    if a.items or b.items:
        if a.brackets != b.brackets or len(a.items) != len(b.items):
            return False
        if a.brackets == "{}":
            return _same_set(a.items, b.items)
        return all(_same(x, y) for x, y in zip(a.items, b.items, strict=True))
    if not a.text or not b.text:
        return False
    return a.text == b.text or (a.text.lower() == b.text.lower() and a.text.lower() in _CASELESS)


def _same_set(a: Sequence[_Value], b: Sequence[_Value]) -> bool:
    rest = list(b)
    for item in a:
        match = next((i for i, other in enumerate(rest) if _same(item, other)), None)
        if match is None:
            return False
        del rest[match]
    return not rest


# --- equivalence ---

_NO_ANSWER = frozenset(
    (
        "",
        "unanswerable",
        "no answer",
        "noanswer",
        "not answerable",
        "cannot be determined",
        "cannot be answered",
    )
)
_EDGES = ".,;:!?\"'`()[]{}\u2018\u2019\u201c\u201d*"


def is_no_answer(text: str) -> bool:
    """Whether ``text`` says that the question has no answer (SQuAD2), in one of a few fixed wordings."""
    return " ".join(text.lower().split()).strip(_EDGES) in _NO_ANSWER


def _qa_form(text: str) -> str:
    """Case, edge punctuation and a leading article removed; inner signs stay: ``1.5`` is not ``15``."""
    words = text.split()
    if len(words) > 1 and words[0] != "A" and words[0].lower() in ("a", "an", "the"):  # "A minor" is not "minor"
        words = words[1:]
    words = [re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", word.strip(_EDGES)).casefold() for word in words]
    words = [word.replace(".", "") if re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word) else word for word in words]
    return " ".join(word for word in words if word)


def equivalent(a: str, b: str, domain: Domain) -> bool:
    """Whether two answers are the same answer; True only when they certainly are. Symmetric, no tolerance."""
    if domain == "code":
        return bool(a.strip()) and strip_fence(a) == strip_fence(b)
    if domain == "qa":
        if is_no_answer(a) or is_no_answer(b):
            return is_no_answer(a) and is_no_answer(b)
        form = _qa_form(a)
        if form and form == _qa_form(b):
            # edge stripping loses ".5": where the texts are numbers, the typed values must agree as well
            x, y = _value(a), _value(b)
            return x.number is None or y.number is None or _same(x, y)
        x, y = _value(a), _value(b)
        return x.number is not None and y.number is not None and _same(x, y)
    plain = _strip_latex(a)
    return bool(plain) and (plain == _strip_latex(b) or _same(_value(a), _value(b)))


def matches(answer: str, references: Sequence[str], domain: Domain) -> bool:
    """The rules tier: the answer, as given or as extracted, is equivalent to one of the references."""
    candidates = {answer.strip(), extract_answer(answer, domain)}
    return any(equivalent(c, reference, domain) for c in candidates for reference in references)


# --- extraction ---

_STATED = re.compile(r"\banswer\**\s*(?:is\b|[:=])[\s:*]*", re.IGNORECASE)
_REVISED = re.compile(r"\b(?:wait|actually|however|instead|correction|rather|but|no,|not)\b|n't\b", re.IGNORECASE)
_DENIED = re.compile(r"(?:\b(?:not|wrong|incorrect|previous|if)\b|n't)[^.\n]{0,25}$", re.IGNORECASE)
_HEDGED = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|not|cannot|unless|wait|between|about|approximately|roughly|around|"
    r"nearly|almost|least|most|than|unknown|wrong|incorrect)\b|n['\u2019]t\b|≈|~",
    re.IGNORECASE,
)
_FORMULA_WORD = re.compile(
    r"\b(?:sqrt|sin|cos|tan|sec|csc|cot|log|ln|pi|exp|mod|infinity|infty|frac|binom)", re.IGNORECASE
)
_IN_PROSE = re.compile(
    rf"(?<![\w.,])(?:[-+](?=[$€£¥\d.\\]))?(?:\\?[$€£¥])?{_DIGITS}(?:\s*/\s*\d+)?(?<!\.)"
    r"(?:\s*(?:\\?%|(?:percent|percentage|pct|hundred|thousand|million|billion|trillion|dozen|cents?|degrees?)\b)"
    r"|\s*[°€£¥])?",
    re.IGNORECASE,
)
# a number that is only part of a formula, a range, a ratio or an inequality
_FRAGMENT_BEFORE = re.compile(r"(?:[\^_{\\/+×·<>≤≥≠]\s*|[<>!]=\s*|\\[A-Za-z]+\s*|\d\s*[-:*]\s*)$")
_FRAGMENT_AFTER = re.compile(r"\w|\s*[\^_{\\/+×·=<>≤≥]|\s*[-*:]\s*\d")


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces (``\boxed 7`` too).

    None without one. Boxes separated by ``and``, ``or`` or a comma only are one answer, joined by ``, ``.
    """
    boxes: list[tuple[int, int, str]] = []
    for found in re.finditer(r"\\(?:boxed|fbox)\s*", text):
        start = found.end()
        if text[start : start + 1] == "{":
            depth = 0
            for i in range(start, len(text)):
                escaped = text[i - 1] == "\\"
                depth += (text[i] == "{" and not escaped) - (text[i] == "}" and not escaped)
                if depth == 0:
                    boxes.append((found.start(), i + 1, text[start + 1 : i].strip()))
                    break
        elif bare := re.match(r"[^\s$\\{}]+", text[start:]):
            boxes.append((found.start(), start + bare.end(), bare.group()))
    if not boxes:
        return None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = re.sub(r"\\(?:quad|text|[()\[\]])|[${}\s]", "", text[box[1] : run[0][0]])
        if between.lower() not in ("and", "or", ",", ",and", ",or"):
            break
        run.insert(0, box)
    return ", ".join(content for _, _, content in run)


def strip_fence(text: str) -> str:
    """Python source of a reply: the last fenced block if there is one, else the text itself."""
    fenced = re.findall(r"```[\w+-]*[ \t]*\r?\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return str(fenced[-1] if fenced else text).strip("\r\n").rstrip()


def extract_answer(text: str, domain: Domain) -> str:
    r"""The answer inside a reply.

    First that is there: the last ``\boxed{}``, ``####``, ``<answer>``, ``Answer:`` / ``answer is``; else the
    last number for maths and the whole text for qa. For code, the source without its markdown fence.
    """
    if domain == "code":
        return strip_fence(text)
    text = text.rsplit("</think>", 1)[-1].strip()
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    if "####" in text:
        answer = text.rsplit("####", 1)[1].strip().split("\n")[0]
    elif tagged := re.findall(r"<answer>(.*?)(?:</answer>|\Z)", text, re.DOTALL | re.IGNORECASE):
        answer = str(tagged[-1])
        if _STATED.search(answer):
            return extract_answer(answer, domain)
    elif (stated := _stated(text, domain)) is not None:
        answer = stated
    else:
        answer = text
    answer = answer.strip().strip("*").strip()
    return _only_number(answer) if domain == "math" else answer


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _stated(text: str, domain: Domain) -> str | None:
    """What follows the last ``answer is``; None when that is denied before or taken back after."""
    found = _last(_STATED, text)
    if found is None or _DENIED.search(text[: found.start()]):
        return None
    rest = text[found.end() :]
    end = re.search(r"\.(?=\s|$)|\n" if domain == "math" else r"\n", rest)
    phrase, after = (rest[: end.start()], rest[end.end() :]) if end else (rest, "")
    if _REVISED.search(after):
        return None
    return phrase.strip().removesuffix(".") or None


def _only_number(text: str) -> str:
    """The last number of a sentence, or the text itself where the number is not plainly its answer."""
    if _value(text).number is not None or _FORMULA_WORD.search(text):
        return text
    without_commands = re.sub(r"\\[A-Za-z]+", " ", text)
    if not re.search(r"[^\W\d_]{2,}", without_commands):
        return text
    found = _last(_IN_PROSE, text)
    if found is None:
        return text
    before, after = text[: found.start()], text[found.end() :]
    sentence = re.split(r"[.!?](?=\s)|\n", before)[-1]
    tail = re.split(r"[.!?](?=\s|$)|\n", after)[0]
    if _HEDGED.search(sentence) or _HEDGED.search(tail):
        return text
    if re.search(r"\d[^.!?]{0,20}(?:\b(?:and|to)|,)\s*$", sentence):
        return text
    opening = max(before.rfind("("), before.rfind("["), before.rfind("{"))
    if opening > max(before.rfind(")"), before.rfind("]"), before.rfind("}")):
        closing = re.match(r"\s*[)\]]", after)
        alone = not before[opening + 1 :].strip() and before[opening] in "([" and closing
        if not alone or (opening and (before[opening - 1].isalnum() or before[opening - 1] in "}^_\\")):
            return text
        after = after[closing.end() :] if closing else after
        before = before[:opening]
    if _FRAGMENT_BEFORE.search(before) or _FRAGMENT_AFTER.match(after):
        return text
    return found.group().strip()
