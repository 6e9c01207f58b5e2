"""What the host itself knows of a short answer: whether its number is the reference's, and whether it is only copied.

Used around a model judge, which takes 43 for 42 and the question's own words for an answer. Unlike ``equivalence``,
which only accepts, this also rejects; what is no number on either side is left to the model.
"""

import re
from fractions import Fraction

from llm_as_judge.answers import algebra
from llm_as_judge.answers.nonanswers import EDGES
from llm_as_judge.answers.notation import SCALES, clean, number
from llm_as_judge.answers.sameness import same
from llm_as_judge.answers.values import as_fraction, read

_LONGEST = 200  # words in which numbers are looked for
_WORDS_OF_A_NUMBER = 4
_COPIED = 3  # so many words, or fewer, may be the answer to a question that has them


def compare_numbers(said: str, reference: str) -> bool | None:
    """Whether ``said`` has the reference's number; None if the reference is no number, or the rest of ``said`` decides.

    True only if ``said`` is the number alone, in the reference's unit or without one.
    """
    gold = read(reference)
    wanted = [tree for tree in (gold.tree, gold.bare) if tree is not None]
    if not wanted or any(as_fraction(tree) is None for tree in wanted):
        return None
    value = read(said)
    if value.tree is not None and value.bare is not None and as_fraction(value.tree) is not None:
        alike = any(algebra.equal(tree, other) for tree in (value.tree, value.bare) for other in wanted)
        return (True if same(value, gold) else None) if alike else False
    found = numbers_in(said)
    if found.isdisjoint(as_fraction(tree) for tree in wanted):
        return None if "\\" in said else False  # a formula that is not read
    return None if re.search(r"[^\W\d_]", said) else False  # a list of numbers


def compare_typed(said: str, references: tuple[str, ...]) -> bool | None:
    """``compare_numbers`` with several references: True for one of them, False if it is none."""
    try:
        verdicts = [compare_numbers(said, reference) for reference in references]
    except (RecursionError, MemoryError):
        return None
    return True if True in verdicts else None if None in verdicts else False


def numbers_in(text: str) -> set[Fraction]:
    """The numbers in a text, in digits or words; of ``25%`` both 25 and 1/4."""
    words = [word.strip(EDGES + "$€£¥") for word in re.split(r"[\s=]+", clean(text))][-_LONGEST:]
    found = set()
    for start in range(len(words)):
        for end in range(start + 1, min(start + _WORDS_OF_A_NUMBER, len(words)) + 1):
            written = " ".join(words[start:end])
            value: Fraction | int | None = number(written.removesuffix("%"))
            value = SCALES.get(written.lower()) if value is None else value
            if value is not None:
                found |= {Fraction(value), Fraction(value) / (100 if written.endswith("%") else 1)}
    return found


def plain(text: str) -> str:
    """The words of a text in lower case."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def is_copied(said: str, question: str, references: tuple[str, ...]) -> bool:
    """Whether ``said`` is only sentences of the question, or the whole question, which does not contain the answer."""
    asked = f" {plain(question)} "
    if not asked.strip() or any(f" {plain(reference)} " in asked for reference in references):
        return False
    sentences = [words for part in re.split(r"[.?!\n]", said.replace(question, "\n")) if (words := plain(part))]
    whole = plain(said)
    return len(whole.split()) > _COPIED and all(f" {words} " in asked for words in sentences)
