r"""When two answers are the same: the rules, which may only accept.

``equivalent`` compares typed values (``values``, ``sameness``) and never applies a tolerance: it may refuse two equal
answers, it must not accept two different ones. Whatever is too long, too deep or too hard is refused. What is refused
here is left to the LLM judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from llm_as_judge.answers import algebra
from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.expressions import parse
from llm_as_judge.answers.extraction import LONGEST_REPLY, candidates, finished, withdrawn
from llm_as_judge.answers.latex import clean, tight
from llm_as_judge.answers.nonanswers import is_error, is_no_answer
from llm_as_judge.answers.numerals import amount
from llm_as_judge.answers.numeric import arranged, numbers, symbols
from llm_as_judge.answers.options import chosen_option, letter
from llm_as_judge.answers.prose import operated_after
from llm_as_judge.answers.sameness import same
from llm_as_judge.answers.units import UNITS, Unit, split_unit
from llm_as_judge.answers.values import Value, quantity, read
from llm_as_judge.types import Domain

#: ``unproved``: two formulas were not shown to be equal, or to differ, with the effort allowed.
Comparison = Literal["same", "different", "unproved"]

_EDGES = ".,;:!?\"'`()[]{}\u2018\u2019\u201c\u201d*"
_FORM_ASKED = re.compile(
    r"\b(?:factor(?!ial)|expand|simplif|rationali[sz]|partial fraction|complet\w* the square)", re.IGNORECASE
)
_PERCENT_ASKED = re.compile(r"\bpercent|%", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[-+]?(?![1-9]\d{0,2},\d{3}$)\d+,\d+")  # 1,200 is twelve hundred
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:[ \u2009\u202f]\d{3})+(?:\.\d+)?")
_CURRENCIES = frozenset("$€£¥")
_WORDS_AFTER = re.compile(
    r"\s?\\(?:text|mbox|textnormal|textrm|mathrm)\s?\{\s?([A-Za-z]{3,}[A-Za-z ]*)\}$|\s(?:square |cubic )?units?$"
)
_POLAR = re.compile(r"\**(yes|no)\**[,.;:!]\**\s+([^\W\d][^\n?]{0,250})", re.IGNORECASE)
_QUALIFIED = re.compile(
    r"\b(?:yes|but|however|although|though|while|whereas|except|unless|only|part(?:ly|ially)|depends?|if|or|maybe|perhaps|"
    r"possibly|actually|wait|instead|rather|right|correct|wrong|incorrect|false|reverse|joke|sometimes|unsure|un(?:clear|known)|opposite|contrary)\b",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"\[\s?([^\[\],;]{1,40})\s?\]")


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
        return bool(a.strip()) and last_block(a) == last_block(b)
    if domain == "qa":
        if is_no_answer(a) or is_no_answer(b):
            return is_no_answer(a) and is_no_answer(b)
        x, y = quantity(a), quantity(b)
        if (form := _qa_form(a)) and form == _qa_form(b):
            # edge stripping loses ".5": where the texts are numbers, the typed values must agree as well
            return x is None or y is None or same(x, y)
        return x is not None and y is not None and same(x, y)
    plain = clean(a)
    return bool(plain) and (plain == clean(b) or same(read(a), read(b)))


def compare(
    answer: str,
    references: Sequence[str],
    domain: Domain,
    question: str = "",
    *,
    cut_off: bool = False,
    effort_s: float = algebra.EFFORT_CPU_S,
) -> Comparison:
    """The rules tier: the answer, as given or as read out of its reply, is equivalent to one of the references.

    With the ``question``, arithmetic or a formula taken from it is no answer, though it has the right value. Of a reply
    that was ``cut_off`` only what it had stated before its end is read. All proofs together get ``effort_s`` of
    processor time; with 0 only what takes none is accepted. Nothing that ``answer`` holds makes it raise.
    """
    with algebra.effort(effort_s) as effort:
        try:
            accepted = _accepted(answer, references, domain, question, cut_off)
        except (RecursionError, MemoryError):
            return "different"
    return "same" if accepted else "unproved" if effort.gave_up else "different"


def matches(answer: str, references: Sequence[str], domain: Domain, question: str = "") -> bool:
    """Whether ``compare`` finds the answer to be one of the references."""
    return compare(answer, references, domain, question) == "same"


def withdraws(answer: str, references: Sequence[str], domain: Domain) -> bool:
    """Whether the answer denies a reference, or calls it wrong: no model has to be asked about that."""
    said = withdrawn(answer, domain) if domain != "code" else None
    return said is not None and compare(said, references, domain, effort_s=0) == "same"


def _accepted(answer: str, references: Sequence[str], domain: Domain, question: str, cut_off: bool) -> bool:
    if domain == "code":
        return any(equivalent(answer, reference, domain) for reference in references)
    if is_error(answer):
        return False
    whole = (answer.strip()[:LONGEST_REPLY], *candidates(answer, domain))
    said = finished(answer, domain) if cut_off else tuple(dict.fromkeys(whole))
    for reference in references:
        if not cut_off and (wanted := letter(reference)) and chosen_option(answer, question) == wanted:
            return True
        for text in said:
            if domain == "qa" and (equivalent(text, reference, domain) or _polar(text) == reference.strip().lower()):
                return True
            if domain == "math" and _same_maths(text, reference, question):
                return True
    return False


def _polar(text: str) -> str | None:
    """``yes`` or ``no`` where a sentence begins with it and only says so again."""
    found = _POLAR.fullmatch(text.strip()) if len(text) <= 300 else None
    if found is None or _QUALIFIED.search(found.group(2)):
        return None
    said = found.group(1).lower()
    denied = re.search(r"\b(?:not?|never|neither|none|nor)\b|n['\u2019]t\b", found.group(2), re.IGNORECASE)
    return None if said == "yes" and denied else said


def _same_maths(text: str, reference: str, question: str) -> bool:
    same_value = equivalent(text, reference, "math") or _same_number_otherwise(text, reference, question)
    if not same_value and not _same_measure(text, reference):
        return False
    return not question or not (_not_done(text, reference, question) or _other_unit(text, reference, question))


def _same_number_otherwise(text: str, reference: str, question: str) -> bool:
    """Ways to write a number that are plain only beside the reference: ``3,14``, ``1 000``, percents if asked for."""
    if single := _IN_BRACKETS.fullmatch(text.strip()):
        text = single.group(1)
    plain, wanted = clean(_without_words(text)), clean(_without_words(reference))
    gold = quantity(wanted)
    if gold is None or gold.number is None or len(plain) > 100:
        return False
    said = quantity(plain)
    if said is not None and said.number is not None:
        percents = [value.unit is not None and value.unit.quantity == "%" for value in (said, gold)]
        asked = bool(_PERCENT_ASKED.search(question)) or (not question and percents[1] and said.number > 1)
        if asked and sorted(percents) == [False, True] and (said.unit is None or gold.unit is None):
            return said.number * (100 if percents[0] else 1) == gold.number * (100 if percents[1] else 1)
    if single or wanted != clean(reference) or plain != clean(text):
        return said is not None and same(said, gold)
    bare, unit = split_unit(plain) or (plain, None)
    if _GROUPED.fullmatch(bare):
        bare = re.sub(r"\s", "", bare)
    elif _DECIMAL_COMMA.fullmatch(bare) and "." in wanted:
        bare = bare.replace(",", ".")
    else:
        return False
    value = amount(bare)
    size = unit.size if unit else 1
    return value is not None and same(Value(bare, number=value * size, unit=unit), gold)


def _same_measure(text: str, reference: str) -> bool:
    """``6\\pi \\text{ cm}^2`` beside ``6\\pi``: a formula without variables, and on one side a unit after it."""
    sides = [(split_unit(plain) or (plain, None), plain) for plain in (clean(text), clean(reference))]
    (said, gold), units = (split[0] for split, _ in sides), [split[1] for split, _ in sides]
    if (units[0] is None) == (units[1] is None) or len(text) > 200 or quantity(text) or quantity(reference):
        return False
    unit = units[0] or units[1]
    trees = parse(said), parse(gold)
    plain = all(tree is not None and not symbols(tree) and tree[0] != "num" for tree in trees)
    return unit is not None and unit.silent and unit.quantity != "$" and plain and equivalent(said, gold, "math")


def _without_words(text: str) -> str:
    """``17`` of ``17\\text{ of them}``, where the words are no unit and do nothing to the number."""
    found = _WORDS_AFTER.search(text)
    if found is None or quantity(text) is not None or operated_after(" " + (found.group(1) or "")):
        return text
    return text[: found.start()]


def _not_done(answer: str, reference: str, question: str) -> bool:
    """Equal in value, but the work that ``question`` asks for was not done: its own formula handed back, or a form
    other than the reference's where the form is what is asked.
    """
    plain = tight(clean(answer))
    tree = parse(clean(answer))
    if tree is None or plain == tight(clean(reference)):
        return False
    if symbols(tree):
        asked = parse(clean(reference))
        same_form = asked is not None and arranged(tree) == arranged(asked)
        return not same_form and bool(_FORM_ASKED.search(question) or plain in tight(clean(question)))
    if tree[0] not in ("num", "neg") and plain in tight(clean(question)):
        return True
    written = [n for n in numbers(tree) if n not in (0, 1)]
    if len(numbers(tree)) < 2:
        return False
    given = {found.replace(",", "") for found in re.findall(r"\d[\d,]*\.?\d*", question)}
    return all(str(n) in given for n in written)


def _other_unit(answer: str, reference: str, question: str) -> bool:
    """The answer names a unit where the reference names none and the question another one of the same quantity."""
    unit, gold = _unit_of(answer), _unit_of(reference)
    if unit is None or gold is not None:
        return False
    words = re.findall(r"[A-Za-z]{2,}|[$€£¥]", question[:20_000])
    known = [UNITS.get(word) or UNITS.get(word.lower()) for word in words]
    kind = unit.quantity
    asked = {(u.quantity, u.size) for u in known if u and (u.quantity == kind or {kind, u.quantity} <= _CURRENCIES)}
    return bool(asked) and (kind, unit.size) not in asked


def _unit_of(text: str) -> Unit | None:
    """The unit of a number, or of a formula that it stands after."""
    if (value := quantity(text)) is not None:
        return value.unit
    split = split_unit(clean(text))
    return split[1] if split else None
