r"""The rules tier: is an answer certainly one of the references?

``compare`` reads the final statement of a reply (``extraction``, ``restating``) and compares it with each reference by
type (``values``, ``sameness``). It accepts only what is certainly equal; everything else is undecided and left to the
LLM judge. References are read like replies, so ``\boxed{42}`` and ``#### 42`` are references too.

From the reply to its numbers: ``compare`` a reply with references; ``equivalent`` two bare answers;
``sameness.same`` two values (units and percentages are there); ``algebra.equal`` two formulas, by ``algebra_worker``
if it takes a proof.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from llm_as_judge.answers import algebra
from llm_as_judge.answers.asked import asked, is_asked, may_have, units, unknowns
from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.extraction import (
    LONGEST_REPLY,
    chosen_option,
    last_boxed,
    last_sentence,
    letter,
    statement,
    visible,
)
from llm_as_judge.answers.formulas import Tree, arranged, nodes, parse, symbols
from llm_as_judge.answers.nonanswers import EDGES, is_error, is_no_answer
from llm_as_judge.answers.notation import ORDINALS, clean, number, tight
from llm_as_judge.answers.restating import restates
from llm_as_judge.answers.sameness import same
from llm_as_judge.answers.units import UNITS, split_unit
from llm_as_judge.answers.values import INTERVALS, Value, quantity, read
from llm_as_judge.types import Domain

#: ``unproved``: undecided because a proof was not completed within the effort allowed.
Comparison = Literal["same", "undecided", "unproved"]

_LONGEST_FORMULA = 600
_LONGEST_FACT = 25  # words
_FORM_ASKED = re.compile(
    r"\b(?:factor(?!ial)|expand|simpl[ei]|rationali[sz]|partial fraction|complet\w* the square|in (?:the )?form)",
    re.IGNORECASE,
)
#: Asked back, a factorial or inches.
_SIGNED = re.compile(r".*(?:\?|\d!)\W*|[^\"'\u2018-\u201d]*\d\s?[\"'\u2019\u201d\u2032\u2033]+\W*", re.DOTALL)
_SET_ASKED = re.compile(r"\b(?:all|every|separated by (?:a )?commas?|roots|solutions|zeros|integers)\b", re.IGNORECASE)
_ORDER_ASKED = re.compile(
    r"\b(?:order|ordered|respectively|ascending|descending|first|sequence|terms?)\b", re.IGNORECASE
)
_NUMBER_FORM_ASKED = re.compile(
    r"\b(?:lowest terms|reduced|simpl|as an? (?:[a-z]+ )*(?:fraction|decimal|number|integer|percent(?:age)?))",
    re.IGNORECASE,
)
_SCIENTIFIC = re.compile(r"-?\d(?:\.\d+)?(?:e-?\d+|(?:\\times|\\cdot|[*×·]) ?10\^(?:-?\d|\{-?\d+\}))", re.IGNORECASE)
_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(rf"(?:{_DAY}(?: of)? ({_MONTH})|({_MONTH}) {_DAY}),? (\d{{4}})", re.IGNORECASE)
_NOUN = re.compile(
    r"(.*\d.*?)(?:\s?\\(?:text|mbox|textnormal|textrm|mathrm)\s?\{\s?[A-Za-z][A-Za-z ]*\}"
    r"|\s(?:square |cubic )?units?)"
)


def equivalent(a: str, b: str, domain: Domain) -> bool:
    """Whether two answers are certainly the same. Symmetric, without tolerance."""
    if domain == "code":
        return bool(a.strip()) and last_block(a) == last_block(b)
    if domain == "qa":
        return _same_text(a, b)
    if max(len(a), len(b)) > _LONGEST_FORMULA:
        return a.strip() == b.strip()
    plain = clean(a)
    return bool(plain) and (plain == clean(b) or same(read(a), read(b)))


def _same_text(a: str, b: str) -> bool:
    if is_no_answer(a) or is_no_answer(b):
        return is_no_answer(a) and is_no_answer(b)
    x, y = quantity(a), quantity(b)
    if (form := _qa_form(a)) and form == _qa_form(b):
        # stripping edges loses ".5": if the texts are numbers, they must agree as numbers
        return x is None or y is None or same(x, y)
    return x is not None and y is not None and same(x, y)


def _qa_form(text: str) -> str:
    """Case, edge punctuation and a leading article removed, dates in one order; inner signs stay."""
    if date := _DATE.fullmatch(text.strip(EDGES + " ")):
        day, month, other_month, other_day, year = date.groups()
        return f"{(month or other_month).lower()} {int(day or other_day)} {year}"
    words = text.replace("\u2019", "'").split()
    if len(words) > 1 and words[0] != "A" and words[0].lower() in ("a", "an", "the"):  # "A minor" is not "minor"
        words = words[1:]
    words = [word.strip(EDGES).casefold() for word in words]
    words = [word.replace(".", "") if re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word) else word for word in words]
    return " ".join(ORDINALS.get(word, word) for word in words if word)


def compare(
    answer: str,
    references: Sequence[str],
    domain: Domain,
    question: str = "",
    *,
    cut_off: bool = False,
    any_box: bool = False,
    effort_s: float = algebra.EFFORT_CPU_S,
) -> Comparison:
    """Whether the answer, or what its reply states, is one of the references. Never raises.

    With the ``question``, a formula copied from it is not an answer, units must be those asked for, and lists may
    come in any order if all solutions are asked for. Of a ``cut_off`` reply only a closed box or tag counts. With
    ``any_box`` the last box of a maths reply counts whatever surrounds it, as in MATH's own script; use it only if no
    model decides what is undecided. All proofs together get ``effort_s`` of processor time; with 0 only what takes
    none is accepted.
    """
    with algebra.effort(effort_s) as effort:
        try:
            accepted = _accepted(answer, references, domain, question, cut_off, any_box)
        except (RecursionError, MemoryError):
            return "undecided"
    return "same" if accepted else "unproved" if effort.gave_up else "undecided"


def matches(answer: str, references: Sequence[str], domain: Domain, question: str = "") -> bool:
    """Whether ``compare`` finds the answer to be one of the references."""
    return compare(answer, references, domain, question) == "same"


def _accepted(
    answer: str, references: Sequence[str], domain: Domain, question: str, cut_off: bool, any_box: bool
) -> bool:
    if domain == "code":
        return any(equivalent(answer, reference, domain) for reference in references)
    if is_error(answer):
        return False
    said = _readings(answer, domain, question, cut_off)
    if any_box and domain == "math" and (box := last_boxed(visible(answer))) is not None:
        said = (*said, box)
    for reference in references:
        wanted = letter(reference)
        if not cut_off and wanted and chosen_option(answer, question) == wanted:
            return True
        if domain == "qa" and not (cut_off or wanted) and _fact(answer, reference, question):
            return True
        for text in said:
            if domain == "qa" and (
                _same_qa(text, reference, question) or _same_in_unit(quantity(text), quantity(reference), question)
            ):
                return True
            if domain == "math" and any(_same_maths(text, gold, question) for gold in _gold(reference)):
                return True
    return False


def _readings(answer: str, domain: Domain, question: str, cut_off: bool) -> tuple[str, ...]:
    """The whole answer as given, if it is short enough, and what it states."""
    stated = statement(answer, domain, question)
    if cut_off:  # what was stated may be continued, except in a closed box or tag
        return () if stated is None or not re.search(r"[}>]\W*\Z", answer[-20:]) else (stated,)
    whole = visible(answer)
    if domain == "math":
        whole = whole.strip("*").removesuffix(".")
    longest = LONGEST_REPLY if domain == "qa" else _LONGEST_FORMULA
    return tuple(dict.fromkeys(text for text in (whole, stated) if text is not None and len(text) <= longest))


def _gold(reference: str) -> tuple[str, ...]:
    """A reference as it is and as it is stated, each also without a noun: ``17\\text{ apples}`` is 17."""
    golds = []
    for text in (reference, last_boxed(reference) or statement(reference, "math")):
        if text is not None and len(text) <= _LONGEST_FORMULA:
            golds.append(text)
            if (found := _NOUN.fullmatch(text.strip("$ "))) and split_unit(clean(text)) is None:
                golds.append(found.group(1))
    return tuple(golds)


def _same_qa(text: str, reference: str, question: str) -> bool:
    text = clean(text) if "\\text" in text else text
    if _SIGNED.fullmatch(text[-20:]) and not _SIGNED.fullmatch(reference[-20:]):
        return False
    if "how many" in question.casefold():
        text, reference = ("0" if said.strip(EDGES).casefold() == "none" else said for said in (text, reference))
    return _same_text(text, reference) and not _other_unit(quantity(text), quantity(reference), question)


def _fact(reply: str, reference: str, question: str) -> bool:
    """Whether the last sentence of a reply is the question's own statement about ``reference``.

    As "The Berlin Wall fell in 1989." and "Yes, both are American.". Of a choice that the question names ("Which is
    older, A or B?") only what stands before it is asked.
    """
    shown = visible(reply)
    question, *options = re.split(r"\s\(?A[).:] (?=[\s\S]{1,200}\sB[).:] )", question)
    if options and re.search(r"(?<!\w)[A-J][).:]", shown):
        return False
    if re.search(rf"(?<!\w){re.escape(reference.strip().casefold())}(?!\w)", question.casefold()):
        question, cut, _ = question.partition(",")
        if not cut:
            return False
    said, size = last_sentence(shown).removesuffix(".").split(), len(reference.split())
    if (
        not question
        or "?" in reply
        or not size <= len(said) <= _LONGEST_FACT
        or re.search(r"n['\u2019]t\b|\bnot\b", question)
    ):
        return False
    for start, length in product(range(len(said)), (size, size + 1)):
        if _same_qa(" ".join(said[start : start + length]).strip("*"), reference, question):
            lead, tail = said[:start], said[start + length :]
            of_what = re.search(r"\bof(?: (?:what|which)\b|\W*\Z)", question)
            if (
                (lead[-1:] == ["of"] and not of_what)
                or not lead + tail
                or not all(any(map(str.isalnum, w)) for w in lead + tail)
            ):
                return False
            if reference.strip().casefold() == "no" and tail:
                if "not" not in tail:
                    return False
                tail.remove("not")
            return restates(" ".join(lead), question, reference, " ".join(tail), by_fact=True)
    return False


def _same_maths(text: str, gold: str, question: str) -> bool:
    plain, wanted = _without_asked_name(clean(text), gold, question), read(gold)
    if not plain or (said := _as_asked(read(plain), wanted, question)) is None:
        return False
    if plain != clean(gold):
        if question and _SET_ASKED.search(question) and not _ORDER_ASKED.search(question):
            said, wanted = (replace(v, brackets="{}") if v.brackets in ("", "&") else v for v in (said, wanted))
        if not same(said, wanted) and not _same_in_unit(said, wanted, question):
            return False
    return not question or not _not_done(plain, gold, question)


def _without_asked_name(plain: str, gold: str, question: str) -> str:
    """``7`` of ``a + b = 7`` if the question asks for ``a + b``."""
    left, *sides = map(str.strip, plain.split("="))
    if not question or not sides or "=" in gold or read(plain).name or not is_asked(left, question):
        return plain
    if (amount := quantity(left)) is not None and amount.unit:
        return plain
    constant = [side for side in sides if (tree := parse(side)) is not None and not symbols(tree)]
    shown = constant if sides[-1] in constant else sides if len(sides) == 1 else []
    tree = parse(left)
    return "=".join(shown) if shown and (tree is None or symbols(tree)) else plain


def _as_asked(said: Value, gold: Value, question: str) -> Value | None:
    """``said`` without the unit that the question asks for; None if its name or unit is not the one asked for."""
    if not question:
        return said
    names = [value.name for value in (said, *said.items) if value.name]
    usual = names == [*"xyz"[: len(gold.items)]] or (bool(gold.items) and set(names) == unknowns(question))
    if names == [said.name] and said.brackets in (*INTERVALS, "∪"):
        if "range" in asked(question):
            return said if f"{said.name}=" in tight(clean(asked(question))) else None
        usual |= said.name in unknowns(question)  # a domain or the solutions of an inequality
    if not gold.name and not usual and not all(is_asked(name, question) for name in names):
        return None
    if said.unit is None or gold.unit is not None:
        return said
    if _other_unit(said, gold, question):
        return None
    return said if said.unit.quantity == "%" else replace(said, tree=said.bare, unit=None)


def _same_in_unit(said: Value | None, gold: Value | None, question: str) -> bool:
    """``40`` and ``40%`` if percents are asked for, ``5`` and ``5 cents`` if cents are."""
    if said is None or gold is None or (said.unit is None) == (gold.unit is None):
        return False
    unit = said.unit or gold.unit
    asked_for = {unit} == {*units(asked(question), wanted=True)}
    asked_for |= not question and gold.unit == UNITS["%"] and (said.number or 0) > 1
    return asked_for and said.bare is not None and gold.bare is not None and algebra.equal(said.bare, gold.bare)


def _not_done(answer: str, reference: str, question: str) -> bool:
    """Equal in value, but not the work that is asked for: copied from the question, arithmetic, or in another form."""
    gold = clean(reference)
    shown = answer if "=" in gold else answer.rpartition("=")[2].strip()
    if tight(shown) == tight(gold) and ("=" in gold) == ("=" in answer):
        return False
    if "=" in gold and "=" not in answer and "equation of" in question:
        return True
    if "scientific notation" in question:
        return not _SCIENTIFIC.fullmatch(tight(shown))
    form_asked, same_form = _FORM_ASKED.search(question) is not None, _sides(shown) == _sides(gold)
    if "=" in gold and form_asked:
        return not same_form
    bare, unit = split_unit(shown) or (shown, None)
    plain, tree, value = tight(bare), parse(bare), number(bare)
    copied = plain in tight(clean(question[-LONGEST_REPLY:]))
    if number(gold.rstrip("%")) is not None:
        if _NUMBER_FORM_ASKED.search(question):
            percent = "%" if unit == UNITS["%"] else ""
            return value is None or _form(bare + percent) != _form(gold)
        if value is None:  # arithmetic, but not 2^10 for 1024 if it is 10^3 for 1000
            return tree is not None and tree[0] != "neg" and not _SCIENTIFIC.fullmatch(plain)
        if not re.search(r"/|\\frac", plain) or re.search(r"/|\\frac", gold):
            return False
        return copied or str(value.denominator) not in re.split(r"\D+", plain)  # not in lowest terms
    if tree is None or value is not None or (same_form and (form_asked or not copied)):
        return False
    amounts = [sum(node[0] == "num" for node in nodes(part)) for part in (tree, parse(gold) or tree)]
    return copied or form_asked or (not symbols(tree) and amounts[0] > amounts[1])


def _sides(text: str) -> list[Tree | None]:
    """The formulas on the sides of ``=``, the parts of each in canonical order."""
    return [tree and arranged(tree) for tree in map(parse, text.split("="))]


def _form(plain: str) -> tuple[str, ...]:
    """What a written number looks like: its signs and, of a fraction, its digits."""
    if re.search(r"/|\\frac", plain):
        return ("/", *sorted(re.findall(r"[-.%]|\d+", plain)))
    return tuple(sign for sign in ("%", ".", "e", "^") if sign in plain)


def _other_unit(said: Value | None, gold: Value | None, question: str) -> bool:
    """Whether an answer has a unit that neither the reference nor the question asks for."""
    if not question or said is None or said.unit is None or (gold is not None and gold.unit is not None):
        return False
    return not may_have(said.unit, question)
