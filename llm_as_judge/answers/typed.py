"""What the host itself knows of a short answer: whether its number is the reference's, and whether it is only copied.

Used around a model judge, which takes 43 for 42 and the question's own words for an answer. Unlike ``equivalence``,
which only accepts, this also rejects; what is no number on either side is left to the model.
"""

import re
from fractions import Fraction

from llm_as_judge.answers import algebra
from llm_as_judge.answers.equivalence import matches
from llm_as_judge.answers.nonanswers import EDGES
from llm_as_judge.answers.notation import SCALES, clean, number
from llm_as_judge.answers.values import as_fraction, read

_LONGEST = 200  # words in which numbers are looked for
_LONGEST_TEXT = 2000
_WORDS_OF_A_NUMBER = 4
#: A number that ends where its digits end: 858 of "858颗", none of 3/4, -5 or x2.
_DIGITS = re.compile(r"(?<![\w.,/^-])\d{1,30}(?:,\d{3})*(?:\.\d{1,30})?(?![\d/^%]|[.,]\d|-\d)")
_COPIED = 3  # so many words, or fewer, may be the answer to a question that has them


def compare_typed(said: str, references: tuple[str, ...], question: str = "") -> bool | None:
    """Accept ``said`` by the rules; False if it has the number of no reference, None if that does not decide."""
    if not said or all(_other_number(said, reference) is None for reference in references):
        return None
    if matches(said, references, "math", question) and matches(said, references, "qa", question):  # 3.1 and 3.10
        return True
    return False if all(_other_number(said, reference) for reference in references) else None


def _other_number(said: str, reference: str) -> bool | None:
    """Tell whether ``said`` lacks the number of the reference, or has only more of them; None if it is no number."""
    try:
        gold, value = read(reference), read(said)
    except (RecursionError, MemoryError):
        return None
    wanted = [tree for tree in (gold.tree, gold.bare) if tree is not None]
    if not wanted or any(as_fraction(tree) is None for tree in wanted):
        return None
    if value.tree is not None and value.bare is not None and as_fraction(value.tree) is not None:
        return not any(algebra.equal(tree, other) for tree in (value.tree, value.bare) for other in wanted)
    if numbers_in(said).isdisjoint(as_fraction(tree) for tree in wanted):
        return "\\" not in said  # a formula that is not read
    return re.search(r"[^\W\d_]", said) is None  # a list of numbers


def numbers_in(text: str) -> set[Fraction]:
    """Return the numbers in a text, in digits or words; of ``25%`` both 25 and 1/4."""
    words = [word.strip(EDGES + "$€£¥") for word in re.split(r"[\s=]+", clean(text))][-_LONGEST:]
    found = {Fraction(digits.replace(",", "")) for digits in _DIGITS.findall(clean(text)[-_LONGEST_TEXT:])}
    for start in range(len(words)):
        for end in range(start + 1, min(start + _WORDS_OF_A_NUMBER, len(words)) + 1):
            written = " ".join(words[start:end])
            value: Fraction | int | None = number(written.removesuffix("%"))
            value = SCALES.get(written.lower()) if value is None else value
            if value is not None:
                found |= {Fraction(value), Fraction(value) / (100 if written.endswith("%") else 1)}
    return found


def words_of(text: str) -> str:
    """Return the words of a text in lower case."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def is_copied(said: str, question: str, references: tuple[str, ...]) -> bool:
    """Tell whether ``said`` is only sentences of the question, or all of it, which does not contain the answer."""
    asked = f" {words_of(question)} "
    if not asked.strip() or any(f" {words_of(reference)} " in asked for reference in references):
        return False
    sentences = [words for part in re.split(r"[.?!\n]", said.replace(question, "\n")) if (words := words_of(part))]
    return len(words_of(said).split()) > _COPIED and all(f" {words} " in asked for words in sentences)
