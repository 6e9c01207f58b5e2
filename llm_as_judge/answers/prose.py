"""The number or formula that a sentence says, where it is plainly its answer; every scan is linear."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from llm_as_judge.answers.numerals import DIGITS
from llm_as_judge.answers.values import read

_REVISED = re.compile(
    r"\b(?:wait|actually|however|instead|correction|rather|but|no,|not)\b|n't\b|不对|等等", re.IGNORECASE
)
_HEDGED = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|not|cannot|unless|wait|between|about|approximately|roughly|around|"
    r"nearly|almost|least|most|than|unknown|wrong|incorrect|except)\b|n['\u2019]t\b|≈|~|或|不是|大约|约|可能|至少|至多",
    re.IGNORECASE,
)
_FORMULA_WORD = re.compile(
    r"\b(?:sqrt|sin|cos|tan|sec|csc|cot|log|ln|pi|exp|mod|infinity|infty|frac|binom)", re.IGNORECASE
)
_IN_PROSE = re.compile(
    rf"(?<![\w.,])(?:[-+](?=[$€£¥\d.\\]))?(?:\\?[$€£¥])?{DIGITS}(?:,\d{{1,2}}(?=\s?[$€£¥]))?(?:\s?/\s?\d+)?(?<!\.)"
    r"(?:\s?(?:\\?%|(?:percent|percentage|pct|hundred|thousand|million|billion|trillion|dozen|cents?|degrees?)\b)"
    r"|\s?[°€£¥])?",
    re.IGNORECASE,
)
# a number that is only part of a formula, a range, a ratio or an inequality
_FRAGMENT_BEFORE = re.compile(r"(?:[\^_{\\/+×·<>≤≥≠]\s?|[<>!]=\s?|\\[A-Za-z]+\s?|\d\s?[-:*]\s?)$")
_FRAGMENT_AFTER = re.compile(r"\w|-\w|\s?\$+\s?\\?%|\s?[?\^_{\\/+×·=<>≤≥]|\s?[-*:]\s?\d")
# a number that something is done to in words
_OPERATED_BEFORE = re.compile(
    r"\b(?:half|thirds?|quarters?|fourths?|fifths?|tenths?|twice|thrice|double|triple|squared?|cubed?|roots?|"
    r"reciprocal|inverse|opposite|logarithm|log|ln|factorial|absolute value|negative|minus|plus|multiples?|divisible|"
    r"divisors?|factors?|powers?|below|above|under|over|beyond|exceeds?|exceeding|near|close|up|down|past|but|within|"
    r"short|times|product|fraction|part)"
    r"(?:\s(?:of|to|by|from|the|number))*[\s$\\(*]*$",
    re.IGNORECASE,
)
_OPERATED_AFTER = re.compile(
    r"\W{0,3}(?:squared|cubed|factorial|halves|thirds|fourths|quarters|\w{2,12}ths|below|above|under|over|beyond|"
    r"short of|shy of|away from|to the|modulo|mod|times (?:\d|pi|the|as)|out of|divided|multiplied|plus|minus|or so|"
    r"ish|and a)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(r"\b(?:if|suppose|assume|assuming|let|when|where|for)\b", re.IGNORECASE)
_SAID_TO_BE = re.compile(
    r"(?:(?:=|:|\b(?:is|are|was|equals|equal to|makes|get|gets|totals?)|是|为|等于)\s?[*$€£¥\\(\[]*"
    r"|^(?:(?!\*\*).)*\*\*)\s?$",
    re.IGNORECASE | re.DOTALL,
)
_SAID = re.compile(r"(?:\b(?:is|are|equals)|[:=])\s?$", re.IGNORECASE)
# the formula is part of something larger
_LARGER_BEFORE = re.compile(r"[-+*/^(\[{|]\s?$")
_LARGER_AFTER = re.compile(r"\s?(?:\\?%|per ?cent|pct|[-+*/^_)\]}|!?=<>])")
_HAN = r"[\u3400-\u9fff]"
_DELIMITERS = (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$", "$"))


def operated_after(rest: str) -> bool:
    """Whether what follows a number does something to it: squared, thirds, below zero."""
    return _OPERATED_AFTER.match(rest) is not None


def segments(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of the formulas between delimiters."""
    gone: set[str] = set()
    place = 0
    while found := re.compile(r"\$\$|(?<!\\)\$|\\\(|\\\[").search(text, place):
        opening, start = found.group(), found.end()
        closing = dict(_DELIMITERS)[opening]
        end = -1 if closing in gone else text.find(closing, start + 1)
        while end > 0 and closing == "$" and text[end - 1] == "\\":
            end = text.find(closing, end + 1)
        if end < 0:
            gone.add(closing)
            place = start
            continue
        yield found.start(), end + len(closing), text[start:end]
        place = end + len(closing)


def only_formula(text: str) -> str | None:
    """The one formula of a text that holds no other number and no hedge, or the last one, said to be it at the end."""
    found = list(segments(text))
    if not found:
        return None
    start, end, formula = found[-1]
    before, after = text[:start], text[end:]
    sentence = re.split(r"[.!?](?=\s)|\n", before)[-1]
    around = before + " " + after
    wrapped = before.strip() + after.strip() in ("[]", "()") and read(formula).number is not None
    if not wrapped and (_LARGER_BEFORE.search(before) or _LARGER_AFTER.match(after)):
        return None
    if len(found) == 1 and not re.search(r"\d", around):
        if _HEDGED.search(around) or _REVISED.search(around):
            return None
    elif not _SAID.search(sentence) or _HEDGED.search(sentence) or re.search(r"\w", after):
        return None
    if _SUPPOSED.search(around if len(found) == 1 else sentence[-80:]) and not before.rstrip().endswith(":"):
        return None
    words = re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", re.sub(r"\\(?:text|begin|end)\s?\{[^{}]*\}", "", formula))
    return None if words else formula.strip()  # between the signs of two amounts of money there are words


def only_number(text: str) -> str:
    """The only formula or last number of a sentence, or the text itself where that is not plainly its answer."""
    if read(text).number is not None:
        return text
    if re.search(_HAN, text):
        text = (
            re.sub(rf"(?<={_HAN})(?=[-\d$*])|(?<=[\d%*])(?={_HAN})", " ", text).replace("。", ". ").replace("，", ", ")
        )
    formula = only_formula(text)
    if formula is not None and formula != text.strip("$ "):
        return formula
    without_commands = re.sub(r"\\[A-Za-z]+", " ", text)
    if not re.search(rf"[^\W\d_]{{2,}}|{_HAN}", without_commands):
        return text
    found = next(iter(deque(_IN_PROSE.finditer(text), maxlen=1)), None)
    if found is None:
        return text
    before, after = text[: found.start()], text[found.end() :]
    sentence = re.split(r"[.!?](?=\s)|\n|\$\$|\\\]", before)[-1]
    tail = re.split(r"[.!?](?=\s|$)|\n", after)[0]
    if _HEDGED.search(re.split(r"[.!?](?=\s)|\n", before)[-1][-80:]):
        return text
    if any(pattern.search(part) for pattern in (_HEDGED, _FORMULA_WORD) for part in (sentence, tail)):
        return text
    if re.search(r"\d[^.!?]{0,20}(?:\b(?:and|to)|,)\s?$", sentence):
        return text
    # of several numbers the last one is the answer only where it is said to be: "220 $ are due in 12 months"
    computed = re.search(rf"=\s?{re.escape(found.group().strip())}(?![\w.,]\d|\d)", sentence)
    if re.search(r"\d", sentence + " " + tail) and not computed and not _SAID_TO_BE.search(sentence):
        return text
    opening = max(before.rfind("("), before.rfind("["), before.rfind("{"))
    if opening > max(before.rfind(")"), before.rfind("]"), before.rfind("}")):
        closing = re.match(r"\s?[)\]]", after)
        alone = not before[opening + 1 :].strip() and before[opening] in "([" and closing
        if not alone or (opening and (before[opening - 1].isalnum() or before[opening - 1] in "}^_\\")):
            return text
        after = after[closing.end() :] if closing else after
        before = before[:opening]
    if found.group()[0] in "+-" and before[-1:] in tuple("$)]}"):
        return text
    if _FRAGMENT_BEFORE.search(before[-60:]) or _FRAGMENT_AFTER.match(after):
        return text
    if _OPERATED_BEFORE.search(before[-60:]) or _OPERATED_AFTER.match(after):
        return text
    return found.group().strip()
