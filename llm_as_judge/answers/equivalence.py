r"""The rules tier: is an answer certainly one of the references?

``compare`` reads the final statement of a reply (``extraction``, ``restating``) and compares it with each reference by
type (``values``, ``sameness``). It accepts only what is certainly equal; everything else is undecided and left to the
LLM judge. References are read like replies, so ``\boxed{42}`` and ``#### 42`` are references too.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from llm_as_judge.answers import algebra
from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.extraction import (
    LONGEST_REPLY,
    chosen_option,
    closing_sentence,
    disputed,
    ends_closed,
    last_boxed,
    letter,
    marks,
    statement,
    supports,
    visible,
)
from llm_as_judge.answers.formulas import exact, num, symbols
from llm_as_judge.answers.nonanswers import EDGES, is_error, is_no_answer
from llm_as_judge.answers.notation import ORDINALS, clean, number, tight
from llm_as_judge.answers.restating import asked, is_asked, restates, unknowns
from llm_as_judge.answers.sameness import form_of, other_form, same
from llm_as_judge.answers.units import SIGNS, UNITS, may_have, split_unit, units
from llm_as_judge.answers.values import INTERVALS, Value, quantity, read
from llm_as_judge.types import Kind

#: ``unproved``: undecided because a proof was not completed within the effort allowed.
Comparison = Literal["same", "undecided", "unproved"]

_LONGEST_FORMULA = 600
_LONGEST_FACT = 25  # words
#: Asked back, a factorial or inches.
_SIGNED = re.compile(r".*(?:\?|\d!)\W*|[^\"'\u2018-\u201d]*\d\s?[\"'\u2019\u201d\u2032\u2033]+\W*", re.DOTALL)
_SET_ASKED = re.compile(r"\b(?:all|every|separated by (?:a )?commas?|roots|solutions|zeros|integers)\b", re.IGNORECASE)
_ORDER_ASKED = re.compile(r"\b(?:order|ordered|respectively|first|sequence|terms?)\b", re.IGNORECASE)
_TWO_ASKED = re.compile(r"[^\d\s] and (?!\d)")
_AMOUNT_ASKED = re.compile(r"\bhow (?:many|much)|\bpercent", re.IGNORECASE)
_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(rf"(?:{_DAY}(?: of)? ({_MONTH})|({_MONTH}) {_DAY}),? (\d{{4}})", re.IGNORECASE)
_ARTICLES = ("a", "an", "the")
#: Quotes, and a full stop that is not that of "1.".
_DROPPED = re.compile(r"[\"\u201c\u201d«»「」]|(?:(?<=\w{2})|(?<=\.\w))[.,](?=[\"\u201d»」]*\Z)")
#: Signs that an answer may have before and after a reference.
_BEFORE, _AFTER, _MARKS = "([{\u2018 ", ")]}\u2019.,;:!。 ", "*'`"
_NEGATED = re.compile(r"n['\u2019]t\b|\bnot\b")
_NOUN = re.compile(r"(.*\d.*?) ((?:square |cubic )?units?|[A-Za-z]{2}[A-Za-z ]*)")
#: Numbers as text that may be a code, version or time: 007, 3.10, 4E2.
_CODE = re.compile(r"0\d+|\d*\.\d*0|\d+E\d+", re.IGNORECASE)


def equivalent(a: str, b: str, domain: Kind) -> bool:
    """Tell whether two answers are certainly the same. Symmetric, without tolerance."""
    if domain == "code":
        return bool(a.strip()) and last_block(a) == last_block(b)
    if domain == "qa":
        return _same_text(a, b) or _same_text(b, a)
    plain = clean(a)
    return bool(plain) and (plain == clean(b) or same(read(a), read(b)))


def _same_text(text: str, reference: str) -> bool:
    if is_no_answer(text) or is_no_answer(reference):
        return is_no_answer(text) and is_no_answer(reference)
    if text == reference:
        return True
    x, y = quantity(text), quantity(reference)
    if x is not None and y is not None:  # the edges of ".5" must stay
        return same(x, y) and reference.startswith("+") <= text.startswith("+")
    if reference.startswith("a ") and text.startswith("A "):
        text = "a" + text[1:]
    gold, form = _qa_form(reference), _qa_form(text)
    for before, found, after in (form.partition(gold), form.rpartition(gold)) if gold else ():
        emphasis = before.strip(_BEFORE)
        if found and not emphasis.strip(_MARKS) and after.strip(_AFTER) == emphasis:
            return True
    return False


def _qa_form(text: str) -> str:
    """Write plain words in lower case without article and signs between them, dates in one order; outer signs stay."""
    text = _DROPPED.sub("", text.strip())
    bare = text.strip(EDGES + " ") or text
    if date := _DATE.fullmatch(bare):
        day, month, other_month, other_day, year = date.groups()
        return f"{(month or other_month).lower()} {int(day or other_day)} {year}"
    words = re.sub(r"(?<=\d)(?: ?\u2013 ?| to )(?=\d)", "-", bare.replace("\u2019", "'")).split()
    if len(words) > 1 and words[0] != "A" and words[0].lower() in _ARTICLES:  # "A minor" is not "minor"
        words = words[1:]
    words = [word.strip(EDGES) + "," * word.endswith(",") if word.strip(EDGES) else word for word in words]
    words = [word.replace(".", "") if re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word) else word for word in words]
    form = " ".join(ORDINALS.get(word.lower(), word) for word in words)
    least = 3 if form != "No" and (re.search(r"\d", form) or not re.search(r"[^\W\d_]{3}", form)) else 2  # 5 Mm
    form = re.sub(r"[^\W\d_]+", lambda word: _lower(word.group(), least), form)
    return text.replace(bare, form) if bare else ""


def _lower(word: str, least: int) -> str:
    """Write a word in lower case, unless capitals may tell it from another: inner ones, all of a short word."""
    plain = len(word) >= least and (word.islower() or word.istitle() or (word.isupper() and len(word) > 4))
    return word.casefold() if plain or word in ("AM", "PM") else word


def _lowered(text: str, reference: str) -> bool:
    """Tell whether a word that the reference capitalises is not capitalised in ``text``."""
    words = zip(reversed(text.split()), reversed(reference.split()), strict=False)
    return any(g[:1].isupper() and s.lstrip(EDGES)[:1].islower() for s, g in words if g.lower() not in _ARTICLES)


def compare(
    answer: str, references: Sequence[str], domain: Kind, question: str = "", *, cut_off: bool = False,
    any_mark: bool = False, effort_s: float = algebra.EFFORT_CPU_S,
) -> Comparison:  # fmt: skip
    """Tell whether the answer, or what its reply states, is one of the references. Never raises.

    With the ``question``, a formula copied from it is not an answer, units must be those asked for, and lists may
    come in any order if all solutions are asked for. Of a ``cut_off`` reply only a closed box or tag counts. With
    ``any_mark`` the last box, tag or ``####`` line of a maths reply counts whatever surrounds it, as in the scripts of
    MATH and GSM8K; use it only if no model decides what is undecided. All proofs together get ``effort_s`` of
    processor time; with 0 only what takes none is accepted.
    """
    with algebra.effort(effort_s) as effort:
        try:
            accepted = _accepted(answer, references, domain, question, cut_off, any_mark)
        except (RecursionError, MemoryError):
            return "undecided"
    return "same" if accepted else "unproved" if effort.gave_up else "undecided"


def matches(answer: str, references: Sequence[str], domain: Kind, question: str = "") -> bool:
    """Tell whether ``compare`` finds the answer to be one of the references."""
    return compare(answer, references, domain, question) == "same"


def _accepted(answer: str, golds: Sequence[str], domain: Kind, question: str, cut_off: bool, any_mark: bool) -> bool:
    if domain == "code":
        return any(equivalent(answer, gold, domain) for gold in golds)
    if is_error(answer) or (cut_off and not ends_closed(answer)):
        return False
    said = _readings(answer, domain, question, cut_off)
    if any_mark and domain == "math":
        said = (*said, *(content for _, _, content in marks(visible(answer))[-1:]))
    for reference in golds:
        wanted = letter(reference)
        if wanted and chosen_option(answer, question) == wanted:
            return True
        if domain == "qa" and not wanted and _fact(answer, reference, question):
            return True
        agree, forms = (_same_qa, (reference,)) if domain == "qa" else (_same_maths, _gold(reference, question))
        if any(agree(text, form, question) for text in said for form in forms):
            return True
    return False


def _readings(answer: str, domain: Kind, question: str, cut_off: bool) -> tuple[str, ...]:
    """Return the whole answer as given, if it is short enough, and what it states."""
    stated = statement(answer, domain, question)
    if cut_off:
        return () if stated is None else (stated,)
    whole = visible(answer)
    if domain == "math":
        whole = whole.strip("*").removesuffix(".")
    longest = LONGEST_REPLY if domain == "qa" else _LONGEST_FORMULA
    return tuple(dict.fromkeys(text for text in (whole, stated) if text is not None and len(text) <= longest))


def _gold(reference: str, question: str) -> tuple[str, ...]:
    """Return a reference as it is and as stated, each also without a noun of the question: ``17\\text{ apples}``."""
    golds = []
    for text in (reference, last_boxed(reference) or statement(reference, "math")):
        if text is not None and len(text) <= _LONGEST_FORMULA:
            golds.append(text)
            plain = clean(text)
            found = None if split_unit(plain) or number(plain) is not None else _NOUN.fullmatch(plain)
            if found and (not question or "unit" in found[2] or found[2] in question):
                golds.append(found[1])
    return tuple(golds)


def _same_qa(text: str, reference: str, question: str) -> bool:
    text = clean(text) if "\\text" in text else text
    forms = {_qa_form(text), _qa_form(reference)}
    if len(forms) > 1 and any(map(_CODE.fullmatch, forms)) and not _AMOUNT_ASKED.search(question):
        return False
    if _SIGNED.fullmatch(text[-20:]) and not _SIGNED.fullmatch(reference[-20:]):
        return False
    if "how many" in question.casefold():
        text, reference = ("0" if said.strip(EDGES).casefold() == "none" else said for said in (text, reference))
    said, gold = quantity(text), quantity(reference)
    if said and gold and question and not _AMOUNT_ASKED.search(question) and other_form(said, gold):
        return False  # five, if asked to write 5 in words
    articles = any(said.split(" ")[0].lower() in _ARTICLES for said in (text, reference))
    renamed = articles and _lowered(text, reference)  # an apple is not Apple
    same_text = _same_text(text, reference) and not renamed and not _other_unit(said, gold, question)
    return same_text or _same_in_unit(said, gold, question)


def _fact(reply: str, reference: str, question: str) -> bool:
    """Tell whether the last sentence of a reply is the question's own statement about ``reference``.

    As "The Berlin Wall fell in 1989." and "Yes, both are American.". Of a choice that the question names ("Which is
    older, A or B?") only what stands before it is asked.
    """
    shown = visible(reply)
    question = re.split(r"\s\(?A[).:] (?=[\s\S]{1,200}\sB[).:] )", question)[0]
    if re.search(rf"(?<!\w){re.escape(reference.strip().casefold())}(?!\w)", question.casefold()):
        question = question.partition(",")[0] if "," in question else ""
    before, sentence = closing_sentence(shown)
    said, size = sentence.removesuffix(".").split(), len(reference.split())
    if not question or "?" in reply or not size < len(said) <= _LONGEST_FACT or _NEGATED.search(question):
        return False
    for start, length in product(range(len(said)), (size + 1, size)):
        part = " ".join(said[start : start + length]).strip("*")
        if _same_qa(part, reference, question) and not _lowered(part, reference):
            lead, tail = said[:start], said[start + length :]
            if lead[-1:] == ["of"] and not re.search(r"\bof(?: (?:what|which)\b|\W*\Z)", question):
                return False
            if reference.strip().casefold() == "no":
                if "not" not in tail or not said[start].endswith(","):
                    return False
                tail.remove("not")
            worded = lead + tail and all(any(map(str.isalnum, word)) for word in lead + tail)
            stated = bool(worded) and restates(" ".join(lead), question, " ".join(tail))
            earlier = shown.removesuffix(sentence)
            return stated and supports(before, question, reference) and not disputed(reference, earlier, question)
    return False


def _same_maths(text: str, gold: str, question: str) -> bool:
    plain, wanted = clean(text), read(gold)
    name, _, value = plain.partition("=")
    if value and "=" not in gold and question and is_asked(name.strip(), question):
        plain = value.strip()
    if not plain or (said := _as_asked(read(plain), wanted, question)) is None:
        return False
    if plain != clean(gold):
        ordered = _ORDER_ASKED.search(question) or _TWO_ASKED.search(asked(question))
        if question and _SET_ASKED.search(question) and not ordered:
            said, wanted = (replace(v, brackets="{}") if v.brackets in ("", "&") else v for v in (said, wanted))
        exchanged = ordered and not any(v.name for v in said.items) and not all(map(same, said.items, wanted.items))
        named = any(v.name for v in (said, *said.items)) or not question or _SET_ASKED.search(question)
        both = re.search(r"\band\b", clean(gold)) or not (named or len(unknowns(question)) == 1)
        if exchanged or (both and re.search(r"\bor\b", plain)):
            return False
        if not same(said, wanted, bool(question)) and not _same_in_unit(said, wanted, question):
            return False
        if question and "=" in gold and "=" not in plain and wanted.tree and symbols(wanted.tree):
            return False  # an equation
    return not question or not _copied(plain, gold, question)


def _as_asked(said: Value, gold: Value, question: str) -> Value | None:
    """Return ``said`` without the unit that the question asks for; None if its name or unit is not the one asked."""
    if not question:
        if said.text.endswith("°") and gold.unit is None:
            return None
        worked_out = said.tree is not None and said.tree[0] == "as" and form_of(gold.text)[0] == "plain"
        value = exact(said.tree[1]) if worked_out and said.tree else None
        return said if value is None else replace(said, tree=num(value))
    names = [value.name for value in (said, *said.items) if value.name]
    usual = "interval" not in question and names == [*"xyz"[: len(gold.items)]]
    usual &= {*names} & unknowns(question) in (set(), {*names})
    usual |= bool(gold.items) and set(names) in (unknowns(question), {item.name for item in gold.items})
    if names == [said.name] and said.brackets in (*INTERVALS, "∪") and "range" in asked(question):
        return said if f"{said.name}=" in tight(clean(asked(question))) else None
    if not gold.name and not usual and not all(is_asked(name, question) for name in names):
        return None
    if _other_unit(said, gold, question):
        return None
    whole = said.unit is None or gold.unit is not None or said.unit.quantity == "%"
    return said if whole else replace(said, tree=said.bare, unit=None)


def _same_in_unit(said: Value | None, gold: Value | None, question: str) -> bool:
    """Equate ``40`` and ``40%`` if percents are asked for, ``5`` and ``5 cents`` if cents are."""
    if said is None or gold is None or (said.unit is None) == (gold.unit is None):
        return False
    unit = said.unit or gold.unit
    asked_for = {unit} == {*units(asked(question), wanted=True)}
    asked_for |= not question and gold.unit == UNITS["%"] and (said.number or 0) > 1
    same_form = not question or form_of(said.text)[0] == form_of(gold.text)[0]
    bare = said.bare is not None and gold.bare is not None and algebra.equal(said.bare, gold.bare)
    return asked_for and same_form and bare


def _copied(answer: str, gold: str, question: str) -> bool:
    """Tell whether an answer in other signs than the reference's stands in the question."""
    bare, wanted = ((split_unit(text) or (text, None))[0] for text in (answer.rpartition("=")[2].strip(), clean(gold)))
    return tight(bare) in tight(clean(question[-LONGEST_REPLY:])) and form_of(bare) != form_of(wanted)


def _other_unit(said: Value | None, gold: Value | None, question: str) -> bool:
    """Tell whether an answer has a unit that neither reference nor question asks for, or lacks an unasked one."""
    unit, wanted = (None if value is None else value.unit for value in (said, gold))
    if not question or said is None or (unit is None) == (wanted is None):
        return False
    if unit is None:
        return wanted is not None and wanted.quantity not in SIGNS and wanted not in units(question)
    return not may_have(unit, question)
