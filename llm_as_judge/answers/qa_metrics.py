"""The official metrics of SQuAD 2.0 and HotpotQA: normalisation, exact match and token F1.

They are reported and never decide a verdict; whether two answers are the same is ``answers.equivalence``. For SQuAD a
prediction that says in words that there is no answer counts as none.
"""

from __future__ import annotations

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
    """Exact match after normalisation, the best over ``golds``; no gold means that there is no answer."""
    said = _squad_prediction(prediction)
    return float(any(said == normalize_squad(gold) for gold in golds or ("",)))


def squad_f1(prediction: str, golds: Sequence[str]) -> float:
    """Token F1, best over ``golds`` (Rajpurkar et al. 2018); with no answer on either side it is 0 or 1."""
    said = _squad_prediction(prediction).split()
    return max(_f1(said, normalize_squad(gold).split()) for gold in golds or ("",))


def hotpot_f1(prediction: str, golds: Sequence[str]) -> float:
    """SQuAD's F1 with HotpotQA's rule: where either side is yes, no or noanswer and they differ, it is 0."""
    said = normalize_squad(prediction)
    fixed = {"yes", "no", "noanswer"}
    return max(
        0.0 if said != gold and (said in fixed or gold in fixed) else _f1(said.split(), gold.split())
        for gold in map(normalize_squad, golds or ("",))
    )


def _squad_prediction(text: str) -> str:
    return "" if is_no_answer(text) else normalize_squad(text)


def _f1(said: list[str], gold: list[str]) -> float:
    if not said or not gold:
        return float(said == gold)
    common = sum((Counter(said) & Counter(gold)).values())
    return 2 * common / (len(said) + len(gold))
