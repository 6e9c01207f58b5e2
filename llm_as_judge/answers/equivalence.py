r"""When two answers are the same: the rules, which may only accept.

``equivalent`` compares typed values (``values``) and never applies a tolerance: it may refuse two equal answers, it
must not accept two different ones. Formulas are compared by algebra in a process with a time limit (``algebra``).
What is refused here is left to the LLM judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.expressions import parse
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.answers.latex import clean, tight
from llm_as_judge.answers.numeric import arranged, numbers, symbols
from llm_as_judge.answers.values import read, same
from llm_as_judge.types import Domain

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
_OPTION = re.compile(r"\(?([A-J])(?:\)|[.:。：](?=\s|$)|\)\.)\s*(.*)", re.DOTALL)
_REFUSED_OPTIONS = re.compile(
    r"(?:\bnot|\bcannot be|n't(?: be)?|不是)\s*\(?[A-J]\b\)?(?:\s*(?:,|or|and|nor|或|和)\s*\(?[A-J]\b\)?)*"
)


def is_no_answer(text: str) -> bool:
    """Whether ``text`` says that the question has no answer (SQuAD2): nothing at all, or one of a few fixed wordings.

    A lone sign is not nothing: it says neither that nor anything else.
    """
    said = " ".join(text.lower().split())
    return not said or (bool(said.strip(_EDGES)) and said.strip(_EDGES) in _NO_ANSWER)


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
        form = _qa_form(a)
        if form and form == _qa_form(b):
            # edge stripping loses ".5": where the texts are numbers, the typed values must agree as well
            x, y = read(a), read(b)
            return x.number is None or y.number is None or same(x, y)
        x, y = read(a), read(b)
        return x.number is not None and y.number is not None and same(x, y)
    plain = clean(a)
    return bool(plain) and (plain == clean(b) or same(read(a), read(b)))


def chosen_option(text: str) -> str:
    """The letter of a reply that begins with its option (``(B) library``, ``D. It cannot be A``); else empty.

    A reply that names another letter, other than to refuse it, has not chosen.
    """
    found = _OPTION.fullmatch(text.strip())
    if found is None:
        return ""
    rest = _REFUSED_OPTIONS.sub(" ", found.group(2))
    others = set(re.findall(r"(?<![\w'])([B-HJ])(?![\w'])|[(]([A-J])[)]", rest))
    return "" if {letter for pair in others for letter in pair if letter} - {found.group(1)} else found.group(1)


_FORM_ASKED = re.compile(
    r"\b(?:factor(?!ial)|expand|simplif|rationali[sz]|partial fraction|complet\w* the square)", re.IGNORECASE
)


def _not_done(answer: str, reference: str, question: str) -> bool:
    """Equal in value, but the work that ``question`` asks for was not done: its own formula handed back, or a form
    other than the reference's where the form is what is asked.
    """
    tree = parse(clean(answer))
    if tree is None or tight(clean(answer)) == tight(clean(reference)):
        return False
    if symbols(tree):
        asked = parse(clean(reference))
        same_form = asked is not None and arranged(tree) == arranged(asked)
        return not same_form and bool(_FORM_ASKED.search(question) or tight(clean(answer)) in tight(clean(question)))
    written = numbers(tree)
    if len(written) < 2:
        return False
    given = {found.replace(",", "") for found in re.findall(r"\d[\d,]*\.?\d*", question)}
    return all(str(n) in given for n in written)


def matches(answer: str, references: Sequence[str], domain: Domain, question: str = "") -> bool:
    """The rules tier: the answer, as given or as extracted, is equivalent to one of the references.

    With the ``question``, arithmetic or a formula taken from it is no answer, though it has the right value.
    """
    candidates = {answer.strip(), extract_answer(answer, domain)}
    if domain != "code" and (option := chosen_option(answer)):
        candidates.add(option)
    return any(
        equivalent(c, reference, domain) and not (domain == "math" and question and _not_done(c, reference, question))
        for c in candidates
        for reference in references
    )
