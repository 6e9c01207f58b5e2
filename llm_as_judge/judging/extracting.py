"""The final answer of a reply, copied out by a model that does not see the reference.

A sentence such as "identical to the reference" can be believed by the model that compares; a copied answer cannot claim
anything. The host checks that the copy is a short part of the reply; what is no such copy is asked for again.
"""

import re
from collections import Counter
from fractions import Fraction

from llm_as_judge.answers.code import blocks
from llm_as_judge.answers.extraction import statement, visible
from llm_as_judge.answers.nonanswers import EDGES
from llm_as_judge.answers.notation import clean, number, tight
from llm_as_judge.answers.typed import numbers_in, words_of
from llm_as_judge.judging import prompts
from llm_as_judge.judging.asking import json_objects, without_thinking
from llm_as_judge.judging.prompts import fence

#: Words of a copy.
LONGEST_COPY = 25
_LABEL = re.compile(r"\A(?:final )?(?:answer|copy)\W{0,3}[:\uff1a]\W*", re.IGNORECASE)
#: Few words before a copy, none of which denies it; the number of an item.
_LEAD = re.compile(r"\A(?:\d{1,2}[.)]|(?!.*(?:\bnot?\b|n[\'\u2019]t\b))[^:\uff1a\n]{1,40}?(?:\bis|[:\uff1a]))\s+", re.I)
#: Other ways to write a fraction, an ordinal, a percentage and a negative number.
_SAME = (
    (r"\\[dtc]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2"), (r"(\d)(?:st|nd|rd|th)\b", r"\1"),
    (r"(?i)(?<=\d) ?per ?cent\b", "%"), (r"(?i)(?<!\w )\bminus (?=\w)|(?<=is )minus (?=\w)", "negative "),
)  # fmt: skip
_MARKUP = re.compile(r"[*`$]|\\[()\[\]]|\\(?:boxed|text|fbox)(?![A-Za-z])|[{}]")


def build(question: str, reply: str, attempt: int) -> str:
    """Build the request; other words at the second attempt."""
    asked = prompts.EXTRACT_PROMPT.format(question=fence(question), candidate=fence(reply))
    return asked + prompts.EXTRACT_RETRY_LINE.format(words=LONGEST_COPY) * attempt


def read_copy(said: str, reply: str = "") -> str:
    """Read the copy that a model's reply is: its statement, or the first or last line, with or without a lead.

    The one that is a part of ``reply``; empty only for NONE.
    """
    text = "\n".join(blocks(shown := without_thinking(said))) or shown.strip()
    values = [value for each in json_objects(text) for value in each.values()]
    lines = ["".join(map(str, values))] if len(values) == 1 else [line for line in text.split("\n") if line.strip()]
    found = [_LABEL.sub("", line) for line in (lines or [said])[:: max(1, len(lines) - 1)]]
    found = [*found, statement(text, "qa") or "", *(_LEAD.sub("", line) for line in found)]
    copies = [copy.strip("\"'`*\u201c\u201d ").rstrip("\"'`*\u201c\u201d .") for copy in found]
    copy = next((copy for copy in copies if copy and is_part(copy, reply)), copies[0])
    return "" if re.match(r"NONE\b", copies[0]) else copy or said


def is_part(copy: str, reply: str) -> bool:
    """Tell whether ``copy`` is a short part of ``reply``: some words and numbers, which may be written otherwise.

    No part ends within a number or a word: ``5`` is no part of ``-5``, ``3.5`` or ``15``.
    """
    shown = visible(reply)
    for pattern, new in _SAME:
        copy, shown = (re.sub(pattern, new, text) for text in (copy, shown))
    words = words_of(copy).split()
    if not words or len(words) > LONGEST_COPY:
        return False
    if (value := number(clean(copy))) is not None and Fraction(value) in numbers_in(shown):
        return True
    said, told = (_MARKUP.sub("", fence(text).casefold()) for text in (copy, shown))
    short, long = tight(said), tight(told)
    before, after = (r"(?<![\d.,/^-])", r"(?![\d/^%]|[.,]\d|-\d)") if re.search(r"\d", copy) else ("", "")
    before += r"(?<![a-z])" if re.match("[a-z]", short) else ""
    after += r"(?![a-z])" if re.search(r"[a-z]\Z", short) else ""
    if short and re.search(rf"{before}{re.escape(short)}{after}", long):
        return True
    if re.search(r"\d", copy):
        return len(words) > 1 and _tokens(re.sub(r"(?<=\d)-(?=\d)", " ", said)) <= _tokens(told)
    return set(words) <= set(words_of(shown).split())


def _tokens(text: str) -> Counter[str]:
    """Count words, and numbers with their signs."""
    tokens = (token.strip(EDGES) for token in re.split(r"[\s=]+|(?<!\d)[,;:]|[,;:](?!\d)", text))
    return Counter(token for token in tokens if token and token != "and")
