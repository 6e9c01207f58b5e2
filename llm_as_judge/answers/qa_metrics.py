"""The official metrics of SQuAD 2.0 and HotpotQA: normalisation, exact match and token F1.

For SQuAD a prediction that says in words that there is no answer counts as empty.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from llm_as_judge.answers.nonanswers import EDGES, is_no_answer, non_answer

_LONGEST = 200
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


def normalize_squad(text: str) -> str:
    """SQuAD's ``normalize_answer``: lower case, no ASCII punctuation, no articles, single spaces."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_em(prediction: str, golds: Sequence[str]) -> float:
    """Exact match after normalisation, the best over ``golds``; no gold means there is no answer."""
    return float(_squad_prediction(prediction, golds) in _squad_golds(golds))


def squad_f1(prediction: str, golds: Sequence[str]) -> float:
    """Token F1, best over ``golds`` (Rajpurkar et al. 2018); with no answer on either side it is 0 or 1."""
    said = _squad_prediction(prediction, golds)
    return max(_f1(said, gold) if said and gold else float(said == gold) for gold in _squad_golds(golds))


def hotpot_em(prediction: str, golds: Sequence[str]) -> float:
    """Exact match after normalisation, the best over ``golds``."""
    return float(normalize_squad(prediction) in map(normalize_squad, golds))


def hotpot_f1(prediction: str, golds: Sequence[str]) -> float:
    """Token F1, best over ``golds`` (Yang et al. 2018): if either side is yes, no or noanswer and they differ, 0."""
    said = normalize_squad(prediction)
    fixed = {"yes", "no", "noanswer"}
    return max(
        0.0 if said != gold and (said in fixed or gold in fixed) else _f1(said, gold)
        for gold in map(normalize_squad, golds or ("",))
    )


def _squad_golds(golds: Sequence[str]) -> list[str]:
    """Normalised golds without those that consist of articles and signs only."""
    return [gold for gold in map(normalize_squad, golds) if gold] or [""]


def _squad_prediction(text: str, golds: Sequence[str]) -> str:
    said = normalize_squad(text)
    return said if said in map(normalize_squad, golds) or not abstains(text) else ""


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
