r"""The usual scorers of the benchmarks: what published tables count as right.

GSM8K: the last number of the reply (``flexible-extract``) and the number after ``####`` (``strict-match``), as in
lm-evaluation-harness. MATH: math-verify on the last box or final expression; it reads neither bare answers nor plain
notation (``(2, 3)``, ``oo``, ``1e-3``), so what the rules accept is right too. Multiple choice: the letter. SQuAD 2.0
and HotpotQA: exact match and token F1; for SQuAD, a reply that says in words that there is no answer counts as empty.
Code is judged by its tests. They are easier to game than the rules of ``equivalence``.
"""

import logging
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Literal

from llm_as_judge.answers.algebra import verified
from llm_as_judge.answers.equivalence import matches
from llm_as_judge.answers.extraction import extract_answer, last_boxed, letter, visible
from llm_as_judge.answers.nonanswers import EDGES, is_no_answer, non_answer
from llm_as_judge.types import Question, Reference

logger = logging.getLogger(__name__)

#: Official metrics. ``squad2``: exact match and token F1, with separate means for unanswerable questions (Rajpurkar et
#: al. 2018). ``hotpotqa``: exact match and F1 (Yang et al. 2018). ``pass@k``: Chen et al. 2021. ``accuracy``: no usual
#: scorer, the rules decide.
Metric = Literal["accuracy", "pass@k", "gsm8k", "math", "choice", "squad2", "hotpotqa"]
Scores = Mapping[str, float]

_FLEXIBLE = re.compile(r"-?(?:[$0-9.,]{2,}|[0-9]+)")
_STRICT = re.compile(r"#### (-?[0-9.,]+)")

_OPTION = re.compile(r"^\(?([A-J])[.)]\s+(.*)$", re.MULTILINE)
_MARKUP = re.compile(r"\\(?:boxed|fbox|text\w*|math[a-z]+)\b|\\[()\[\]]|[*${}`_]")
#: A letter, unless something else is said of it, another follows as an alternative, or it is asked about or denied.
_LETTER = (
    r"\(?([A-J])(?!['\u2019]?\w|[^\w,.;(]{0,9}\?|\)?(?:,|,? (?:and|or)) \(?[A-J]\b"
    r"|\)? (?:is|are|was)\b(?! (?:the )?(?:correct|right|best|true|answer)\b))"
)
_KIND = r"\W{0,3}(?:(?:the|option|choice|letter)\b\W{0,3}){0,4}"
_STATED = re.compile(
    rf"(?i:\banswer\b\W{{0,3}}(?:is|would be|should be|must be|(?<=[:=\n] ))|\A\W*(?:final )?answer\b){_KIND}{_LETTER}"
)
_LEADING = re.compile(rf"\A\W*{_LETTER}(?:[.:)\]]| because\b|\W*\Z|, )")
#: By a verb, as the correct one, or alone in its clause.
_CHOSEN = re.compile(
    r"(?i:(?:\b(?:is|be|are|was|choose|pick|select|go(?:ing)? with)|\w['\u2019]s)\b(?:\W+(?:most )?\w+ly\b)?"
    rf"{_KIND}){_LETTER}|{_LETTER}\)? is\b"
    rf"|(?:[.,;:=\n](?i: but)?|\b(?i:so|thus|therefore|hence)\b){_KIND}{_LETTER}(?=[)\s]*(?:[.;\n]|\Z))"
)
_NEGATION = re.compile(r"\b(?:not?|nor|neither|never|none|cannot)\b|n['\u2019]t\b", re.IGNORECASE)
_IN_SUBJECT = re.compile(r"\b(?:that|which|who|what)\s+\w+\s*\Z", re.IGNORECASE)
_VERB = re.compile(r"[.;!?\n]|\b(?:is|are|was|were)\b")
_CLAUSE_END = re.compile(
    r"[.;!?\n]|,(?!(?<=[A-J)],) ?(?:(?:or|and|nor) )?\(?[A-J]\b)|(?<=\w\w )but\b|(?<=[A-J )]) but\b"
    r"|\b(?:so|because|then|therefore|thus|hence)\b",
    re.IGNORECASE,
)
_PROGRAM_LOG = re.compile(r"(?<![\\A-Za-z])log\(")

_LONGEST = 200  # characters of a reply that there is no answer
_TEXT = r"(?:passage|context|text|paragraph|article|document|information|source)"
#: Where an answer was looked for, before or after the words that there is none.
_PLACE = re.compile(
    r"\A(?:the|this|that) (?:question|answer) (?:is )?"
    rf"|[ ,]+(?:from|by|in|with|using|based on|given|according to)\b(?: \w+){{0,3}} {_TEXT}"
    r"(?: (?:given|provided|above))?\Z"
)
_SILENT = re.compile(
    rf"(?:the|this|that)(?: \w+)? {_TEXT} (?:does not|doesn't|did not|never) "
    r"(?:say|state|mention|specify|provide|contain|give|answer|tell|include)[a-z ]{0,60}"
)


def scores(metric: Metric, answer: str | None, question: Question, reference: Reference) -> Scores:
    """Scores of one answer in [0, 1], the one that decides first; empty if the rules or tests decide.

    ``answer`` is None for a failed workflow, which scores 0 also if there is no right answer. Raises
    ``InfrastructureError`` if math-verify could not be run.
    """
    score = _SCORES.get(metric)
    if score is None or (metric == "math" and not verifies_math()):
        return {}
    if answer is not None:
        return score(answer, question, reference)
    return dict.fromkeys(score("", question, reference), 0.0)


@cache
def verifies_math() -> bool:
    """Whether math-verify is installed."""
    found = find_spec("math_verify") is not None
    if not found:
        logger.warning(
            "math-verify is not installed, so the rules judge MATH and its column is called so; "
            "pip install 'llm-as-judge[math]'"
        )
    return found


def _gsm8k(answer: str, question: Question, reference: Reference) -> Scores:
    golds = set(map(_plain, reference.answers))
    last, marked = _FLEXIBLE.findall(answer), _STRICT.search(answer)
    return {
        "flexible-extract": float(bool(last) and _plain(last[-1]) in golds),
        "strict-match": float(marked is not None and _plain(marked[1]) in golds),
    }


def _plain(number: str) -> str:
    """A number as GSM8K compares it: without separators, dollar signs and a closing point."""
    return number.replace(",", "").replace("$", "").rpartition("#### ")[2].strip().removesuffix(".").lower()


def same_answers(metric: Metric, answer: str, question: Question) -> str:
    """What counts as one answer in a majority vote: replies with the same text of it agree."""
    if metric == "gsm8k":
        return _plain((_FLEXIBLE.findall(answer) or [""])[-1])
    if metric == "choice":
        return chosen_letter(answer, question.text)
    said = last_boxed(visible(answer)) or extract_answer(answer, question.kind)
    return normalize_squad(said) if question.kind == "qa" else "".join(said.split()).strip("$.")


def _math(answer: str, question: Question, reference: Reference) -> Scores:
    natural = _PROGRAM_LOG.sub("ln(", answer)
    right = bool(answer) and (
        verified(answer, reference.answers)
        or any(matches(said, reference.answers, "math", question.text) for said in {answer, natural})
    )
    return {"math_verify": float(right)}


def _choice(answer: str, question: Question, reference: Reference) -> Scores:
    right = next(filter(None, map(letter, reference.answers)), "")
    chosen = chosen_letter(answer, question.text)
    return {"accuracy": float(bool(chosen) and chosen == right)}


def chosen_letter(reply: str, question: str) -> str:
    """The letter that a reply chooses: by the text of an option, after "answer", at the start, or the last one."""
    texts: dict[str, str] = dict(_OPTION.findall(question))
    said = _MARKUP.sub(" ", reply).strip()
    named = [name for name, text in texts.items() if _folded(text) == _folded(said)]
    if len(named) == 1 and len(said) > 1:
        return named[0]
    for name, text in texts.items():
        said = re.sub(rf"\b({name}[).:]?) +{re.escape(text)}", r"\1", said, flags=re.IGNORECASE)
    said = _affirmed(said)
    for pattern in (_STATED, _LEADING, _CHOSEN):
        if found := list(pattern.finditer(said)):
            return next(group for group in found[-1].groups() if isinstance(group, str))
    return ""


def _affirmed(said: str) -> str:
    """A reply with a sign for what its negations deny: the rest of a clause, in a relative clause up to the verb."""
    kept, start = "", 0
    for found in _NEGATION.finditer(said):
        if found.start() >= start:
            ending = _VERB if _IN_SUBJECT.search(said[max(0, found.start() - 40) : found.start()]) else _CLAUSE_END
            end = ending.search(said, found.end())
            kept += said[start : found.start()]
            start = end.start() if end else len(said)
            kept += ";" if re.search(r"\b[A-J]\b", said[found.end() : start]) else "?"
    return kept + said[start:]


def _folded(text: str) -> str:
    return " ".join(_MARKUP.sub(" ", text).split()).strip(" .").casefold()


def normalize_squad(text: str) -> str:
    """SQuAD's ``normalize_answer``: lower case, no ASCII punctuation, no articles, single spaces."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_scores(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Exact match after normalisation and token F1, the best over ``golds`` (Rajpurkar et al. 2018).

    Golds of articles and signs only do not count; no gold means there is no answer, which F1 then takes as 0 or 1.
    """
    normal = [normalize_squad(gold) for gold in golds]
    said, wanted = normalize_squad(prediction), [gold for gold in normal if gold] or [""]
    if said not in normal and abstains(prediction):
        said = ""
    f1 = max(_f1(said, gold) if said and gold else float(said == gold) for gold in wanted)
    return float(said in wanted), f1


def hotpot_scores(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Exact match and token F1, best over ``golds`` (Yang et al. 2018): if either side is yes, no or noanswer and they
    differ, F1 is 0.
    """
    said, wanted, fixed = normalize_squad(prediction), [*map(normalize_squad, golds)], {"yes", "no", "noanswer"}
    f1 = max(0.0 if said != gold and fixed & {said, gold} else _f1(said, gold) for gold in wanted or [""])
    return float(said in wanted), f1


def abstains(text: str) -> bool:
    """Whether a prediction is only that there is no answer, that it is not known, or that the text does not have it."""
    if is_no_answer(text) or len(text) > _LONGEST:
        return is_no_answer(text)
    said = " ".join(text.lower().replace("\u2019", "'").split()).strip(EDGES)
    bare = _PLACE.sub("", said)
    return is_no_answer(bare) or non_answer(bare) == "ignorance" or _SILENT.fullmatch(said) is not None


def _f1(said: str, gold: str) -> float:
    words, wanted = said.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0


def _stated(answer: str, golds: Sequence[str]) -> str:
    """A reply that is a gold answer as it is; of any other, what it states ("It is Rome": Rome)."""
    return answer if normalize_squad(answer) in map(normalize_squad, golds) else extract_answer(answer, "qa")


def _squad2(answer: str, question: Question, reference: Reference) -> Scores:
    golds = () if reference.unanswerable else reference.answers
    said = _stated(answer, golds)
    exact, f1 = squad_scores(said, golds)
    part = "HasAns" if golds else "NoAns"
    return {"exact": exact, "f1": f1, f"{part}_exact": exact, f"{part}_f1": f1}


def _hotpotqa(answer: str, question: Question, reference: Reference) -> Scores:
    em, f1 = hotpot_scores(_stated(answer, reference.answers), reference.answers)
    return {"em": em, "f1": f1}


_SCORES: Mapping[Metric, Callable[[str, Question, Reference], Scores]] = {
    "gsm8k": _gsm8k,
    "math": _math,
    "choice": _choice,
    "squad2": _squad2,
    "hotpotqa": _hotpotqa,
}
