"""The official metrics of SQuAD 2.0 and HotpotQA: normalisation, exact match and token F1.

For SQuAD a prediction that says in words that there is no answer counts as empty.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from llm_as_judge.answers.nonanswers import is_no_answer


def normalize_squad(text: str) -> str:
    """SQuAD's ``normalize_answer``: lower case, no ASCII punctuation, no articles, single spaces."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_em(prediction: str, golds: Sequence[str]) -> float:
    """Exact match after normalisation, the best over ``golds``; no gold means there is no answer."""
    return float(_squad_prediction(prediction) in _squad_golds(golds))


def squad_f1(prediction: str, golds: Sequence[str]) -> float:
    """Token F1, best over ``golds`` (Rajpurkar et al. 2018); with no answer on either side it is 0 or 1."""
    said = _squad_prediction(prediction)
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


def _squad_prediction(text: str) -> str:
    return "" if is_no_answer(text) else normalize_squad(text)


def _f1(said: str, gold: str) -> float:
    words, wanted = said.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0
