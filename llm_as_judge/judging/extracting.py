"""The final answer of a reply, copied out by a model that does not see the reference.

A sentence such as "identical to the reference" can be believed by the model that compares; a copied answer cannot claim
anything. The host checks that the copy is a short part of the reply. What is no such copy is no answer.
"""

import re
from fractions import Fraction

from llm_as_judge.answers.extraction import visible
from llm_as_judge.answers.notation import clean, number, tight
from llm_as_judge.answers.typed import numbers_in, plain
from llm_as_judge.judging import prompts
from llm_as_judge.judging.prompts import fence

#: Words of a copy.
LONGEST_COPY = 25
_LABEL = re.compile(r"\A(?:final )?(?:answer|copy)\W{0,3}[:\uff1a]\W*", re.IGNORECASE)
_MARKUP = re.compile(r"[*`$]|\\[()\[\]]|\\(?:boxed|text|fbox)(?![A-Za-z])|[{}]")


def build(question: str, reply: str, attempt: int) -> str:
    """The request; other words at the second attempt."""
    asked = prompts.EXTRACT_PROMPT.format(question=fence(question), candidate=fence(reply))
    return asked + prompts.EXTRACT_RETRY_LINE.format(words=LONGEST_COPY) * attempt


def read_copy(said: str) -> str:
    """The copy that a model's reply is; empty for none."""
    line = said.rpartition("</think>")[2].strip().partition("\n")[0]
    copy = _LABEL.sub("", line).strip("\"'`*\u201c\u201d ").rstrip("\"'`*\u201c\u201d .")
    return "" if re.match(r"NONE\b", copy) else copy


def is_part(copy: str, reply: str) -> bool:
    """Whether ``copy`` is a short part of ``reply``: its words in their order, or a number that is written otherwise.

    No part ends within a number or a word: ``5`` is no part of ``-5``, ``3.5`` or ``15``.
    """
    words, shown = plain(copy).split(), visible(reply)
    if not words or len(words) > LONGEST_COPY:
        return False
    if (value := number(clean(copy))) is not None and Fraction(value) in numbers_in(shown):
        return True
    short, long = (tight(_MARKUP.sub("", fence(text).casefold())) for text in (copy, shown))
    before, after = (r"(?<![\d.,/^-])", r"(?![\d/^%]|[.,]\d|-\d)") if re.search(r"\d", copy) else ("", "")
    before += r"(?<![a-z])" if re.match("[a-z]", short) else ""
    after += r"(?![a-z])" if re.search(r"[a-z]\Z", short) else ""
    if short and re.search(rf"{before}{re.escape(short)}{after}", long):
        return True
    return not re.search(r"\d", copy) and set(words) <= set(plain(shown).split())
