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
from llm_as_judge.answers.extraction import extract_answer, last_boxed, letter, marks, unmarked, visible
from llm_as_judge.answers.nonanswers import abstains
from llm_as_judge.answers.notation import clean
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
#: What a mark's letter stands in, after its mark was read.
_MARK = "\u27e6{}\u27e7"
_IS = (
    r"(?i:\banswer\b\W{0,3}(?:(?:is|would be|should be|must be)\b|(?<=[:=\n] ))|\A\W*(?:final )?answer\b|答案[是为:：])"
)
_KIND = r"\W{0,3}(?i:(?:the|option|(?:answer )?choice|letter)\b\W{0,3}){0,4}"
_ENDS = r"(?!\w|[.,]\d)(?=\W{0,3}(?:[.;,(\n]|\Z))"
_END = r"[)\"'\u201d\s]*(?:[.;!。\n]|\Z)|:\n"
_LOWER = re.compile(rf"(?:{_IS}{_KIND}|\A\W*)(?:\([a-j]\)|[a-j]\)|[a-j](?=\W*(?:\n|\Z)))")
_DENIED = r"wrong|incorrect\w*|false|least|worst|unlikely|doubtful|refuse|reject|mistake|distractor|trap|second best"
_IF = r"\bif\b(?=[^.;!?\n]{0,200}\b(?:were|had|would)\b)"
_NEGATION = rf"\b(?:no(?:t|thing|body)?|nor|neither|never|none|cannot|{_DENIED})\b|n['\u2019]t\b|{_IF}"
_IN_SUBJECT = re.compile(r"\b(?:that|which|who|what)\s+\w+\s*\Z", re.IGNORECASE)
_VERB = re.compile(r"[.;!?\n]|\b(?:is|are|was|were)\b")
_CLAUSE_END = re.compile(
    r"[.;!?\n]|,(?!(?<=[A-J)],) ?(?:(?:or|and|nor) )?\(?[A-J]\b)|(?<=\w\w )but\b|(?<=[A-J )]) but\b"
    r"|\b(?:so|because|then|therefore|thus|hence)\b",
    re.IGNORECASE,
)
#: What takes an earlier choice back; a negation that denies no letter is a "?".
_RETRACTED = re.compile(
    r"\?|\b(?:wait|actually|correction|sorry|instead|but|final|so(?! is)|thus|therefore|hence)\b", re.IGNORECASE
)
_PROGRAM_LOG = re.compile(r"(?<![\\A-Za-z])log\(")
_LONGEST_MARK = 200  # characters


def scores(metric: Metric, answer: str | None, question: Question, reference: Reference) -> Scores:
    """Score one answer in [0, 1], the score that decides first; empty if the rules or tests decide.

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
    """Tell whether math-verify is installed."""
    found = find_spec("math_verify") is not None
    if not found:
        logger.warning(
            "math-verify is not installed, so the rules judge MATH and its column is called so; "
            "pip install 'llm-as-judge[math]'"
        )
    return found


def _gsm8k(answer: str, question: Question, reference: Reference) -> Scores:
    golds = set(map(_plain, reference.answers))
    marked = _STRICT.search(answer)
    return {
        "flexible-extract": float(_last_number(answer) in golds),
        "strict-match": float(marked is not None and _plain(marked[1]) in golds),
    }


def _last_number(answer: str) -> str:
    """Find the last match of the usual pattern that has a digit, unlike the ``$.`` after a box; empty without one."""
    return next((_plain(found) for found in reversed(_FLEXIBLE.findall(answer)) if re.search(r"\d", found)), "")


def _plain(number: str) -> str:
    """Write a number as GSM8K compares it: without separators, dollar signs and a closing point."""
    return number.replace(",", "").replace("$", "").rpartition("#### ")[2].strip().removesuffix(".").lower()


def same_answers(metric: Metric, answer: str, question: Question) -> str:
    """Return what counts as one answer in a majority vote: replies with the same text of it agree."""
    if metric == "gsm8k":
        return _last_number(answer)
    if metric == "choice":
        return chosen_letter(answer, question.text)
    said = last_boxed(visible(answer)) or extract_answer(answer, question.kind)
    if question.kind == "qa":
        return "" if metric == "squad2" and abstains(said, question.text) else normalize_squad(said)
    return "".join(said.split()).strip("$.")


def _math(answer: str, question: Question, reference: Reference) -> Scores:
    natural = _PROGRAM_LOG.sub("ln(", answer)
    right = bool(answer) and (
        verified(answer, reference.answers)
        or any(matches(said, reference.answers, "math", question.text) for said in {answer, natural})
    )
    return {"math_verify": float(right)}


def _choice(answer: str, question: Question, reference: Reference) -> Scores:
    return {"accuracy": float(chosen_letter(answer, question.text) in {*map(letter, reference.answers)} - {""})}


@cache
def _choices(letters: str) -> tuple[re.Pattern[str], ...]:
    """Match how a reply chooses one of the ``letters``: in a mark, as the answer, at the start, by a verb or alone.

    Not if something else is said of it, another follows as an alternative, or it is asked about or set a condition.
    """
    letter = (
        rf"\(?([{letters}])(?!['\u2019]?\w|[+#]|[^\w,.;(]{{0,9}}\?|\)? (?:if|unless)\b"
        r"|\)? (?:is|are|was)\b(?! (?:the )?(?:correct|right|best|true|answer)\b| the most [^?;.\n]+(?:[.\n]|\Z)))"
    )
    chosen = (
        r"(?i:(?:\b(?:is|be|are|was|say|choose|pick|select|go(?:ing)? with)|\w['\u2019]s)\b"
        rf"(?:\W+(?:(?:most )?\w+ly|indeed)\b)?){_KIND}{letter}|{letter}\)? is\b"
        rf"|(?i:\b(?:corresponds to|matches|leaves|left with)\b|(?:\A|[\s，。：故此])选择?){_KIND}{letter}(?={_END})"
        rf"|(?:[.,;:=\n](?i: but)?|(?i:\b(?:so|thus|therefore|hence)\b)){_KIND}{letter}(?={_END})"
    )
    leading = rf"\A{_KIND}{letter}(?:[.:)\]]|\W{{1,3}}because\b|\W*\Z|\W*\n|, )"
    return tuple(map(re.compile, (_MARK.format(f"([{letters}])"), _IS + _KIND + letter, leading, chosen)))


def chosen_letter(reply: str, question: str) -> str:
    """Return the letter that a reply chooses; empty if it states none, or several without taking one back."""
    texts: dict[str, str] = {name: unmarked(text) for name, text in _OPTION.findall(question)}
    said = visible(reply)
    for start, end, content in reversed(marks(said)):
        stated = chosen_letter(content, question) if len(content) <= _LONGEST_MARK else ""
        said = f"{said[:start]} {_MARK.format(stated) if stated else content} {said[end:]}"
    said = "\n".join(map(unmarked, said.split("\n"))).strip()
    whole = said.strip(" .").casefold()
    for name, text in sorted(texts.items(), key=lambda option: -len(option[1])):
        folded = text.strip(" .").casefold()
        if folded and folded.upper() not in texts:
            if folded in (whole, whole.rpartition("= ")[2]) and [*texts.values()].count(text) == 1:
                return name
            text = re.escape(folded)
            lettered = rf"(?i)\b({name}[).:]?)(?: [-\u2013\u2014])? +(?:{text}|\({text}\))|{text},? \(?({name}\b)"
            said = re.sub(lettered, r"\1\2", said)
            said = re.sub(rf"({_IS}{_KIND})(?<![-\u2212])(?i:{text}){_ENDS}", rf"\g<1>{name}", said)
    letters = "".join(texts) or "A-J"
    said = _affirmed(_LOWER.sub(lambda found: found.group()[:-2] + found.group()[-2:].upper(), said), question)
    said = re.sub(
        rf"\(?\b[{letters}]\b\)?(?:(?: ?[,;/&+]|,? and|,? or)+ \(?[{letters}]\b\)?(?!\)? (?:is|was)\b))+", "?", said
    )
    for pattern in _choices(letters):
        found = [(match, str(match[match.lastindex or 0])) for match in pattern.finditer(said)]
        if found:
            return _last_chosen(said, found, _choices(letters)[-1])
    return ""


def _last_chosen(said: str, found: Sequence[tuple[re.Match[str], str]], chosen: re.Pattern[str]) -> str:
    """Return the last letter found, or one after it, if all others are the same or taken back before it."""
    last, name = found[-1]
    if (retracted := _RETRACTED.search(said, last.end())) and (later := chosen.search(said, retracted.start())):
        return str(later[later.lastindex or 0])
    other = next((match for match, letter in reversed(found) if letter != name), None)
    return name if other is None or _RETRACTED.search(said, other.end(), last.end()) else ""


def _affirmed(said: str, question: str) -> str:
    """Put a sign in a reply for what its negations deny: the rest of a clause, in a relative clause up to the verb.

    Words of the question, such as "least", do not deny.
    """
    kept, start = "", 0
    for found in re.finditer(_NEGATION, said, re.IGNORECASE):
        word = found.group().casefold()
        asked_for = re.fullmatch(_DENIED, word) and word in question.casefold()
        if found.start() >= start and not asked_for:
            ending = _VERB if _IN_SUBJECT.search(said[max(0, found.start() - 40) : found.start()]) else _CLAUSE_END
            end = re.compile(r"[.;!?\n]" if word == "if" else ending).search(said, found.end())
            kept += said[start : found.start()]
            start = end.start() if end else len(said)
            kept += ";" if re.search(r"\b[A-J]\b", said[found.end() : start]) else "?"
    return kept + said[start:]


def normalize_squad(text: str) -> str:
    """Apply SQuAD's ``normalize_answer``: lower case, no ASCII punctuation, no articles, single spaces."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_scores(prediction: str, golds: Sequence[str], question: str = "") -> tuple[float, float]:
    """Compute exact match after normalisation and token F1, the best over ``golds`` (Rajpurkar et al. 2018).

    Golds of articles and signs only do not count; no gold means there is no answer, which F1 then takes as 0 or 1.
    """
    normal = [normalize_squad(gold) for gold in golds]
    said, wanted = normalize_squad(prediction), [gold for gold in normal if gold] or [""]
    if said not in normal and abstains(prediction, question):
        said = ""
    f1 = max(_f1(said, gold) if said and gold else float(said == gold) for gold in wanted)
    return float(said in wanted), f1


def hotpot_scores(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Compute exact match and token F1, best over ``golds`` (Yang et al. 2018): if either side is yes, no or noanswer
    and they differ, F1 is 0.
    """
    said, wanted, fixed = normalize_squad(prediction), [*map(normalize_squad, golds)], {"yes", "no", "noanswer"}
    f1 = max(0.0 if said != gold and fixed & {said, gold} else _f1(said, gold) for gold in wanted or [""])
    return float(said in wanted), f1


def _f1(said: str, gold: str) -> float:
    words, wanted = said.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0


def _stated(answer: str, golds: Sequence[str]) -> str:
    """Return a reply that is a gold answer as it is; of any other, what it states ("It is Rome": Rome)."""
    said = answer if normalize_squad(answer) in map(normalize_squad, golds) else extract_answer(answer, "qa")
    return clean(said) if "\\text" in said else said


def _squad2(answer: str, question: Question, reference: Reference) -> Scores:
    golds = () if reference.unanswerable else reference.answers
    said = _stated(answer, golds)
    exact, f1 = squad_scores(said, golds, question.text)
    part = "HasAns" if golds else "NoAns"
    return {"exact": exact, "f1": f1, f"{part}_exact": exact, f"{part}_f1": f1}


def _hotpotqa(answer: str, question: Question, reference: Reference) -> Scores:
    return dict(zip(("em", "f1"), hotpot_scores(_stated(answer, reference.answers), reference.answers), strict=True))


_SCORES: Mapping[Metric, Callable[[str, Question, Reference], Scores]] = {
    "gsm8k": _gsm8k,
    "math": _math,
    "choice": _choice,
    "squad2": _squad2,
    "hotpotqa": _hotpotqa,
}
