"""Computes the official metric of a benchmark, which ``data.catalog.metric_of`` chooses, under its published name.

Neither the reward nor an LLM judge is involved. A workflow that failed gave no answer and counts 0, also if the right
answer is that there is none. Infrastructure faults are counted and left out.
"""

from collections.abc import Mapping, Sequence

from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.answers.qa_metrics import QA_SCORES
from llm_as_judge.data.dataset import Metric
from llm_as_judge.evaluation.intervals import Estimate, estimate, mean, pass_at_k
from llm_as_judge.types import Reference


def answer_scores(metric: Metric, answer: str | None, reference: Reference) -> dict[str, float]:
    """Scores of one answer by the official script of a QA benchmark (None: no answer); empty for other metrics."""
    said = None if answer is None else extract_answer(answer, "qa")
    if metric not in QA_SCORES:
        return {}
    golds = () if reference.unanswerable else reference.answers
    exact_match, token_f1 = QA_SCORES[metric]
    em, f1 = (0.0, 0.0) if said is None else (exact_match(said, golds), token_f1(said, golds))
    if metric == "hotpotqa":
        return {"em": em, "f1": f1}
    part = "HasAns" if golds else "NoAns"
    return {"exact": em, "f1": f1, f"{part}_exact": em, f"{part}_f1": f1}


#: Scores whose mean is over all problems, then those that only some problems have.
_NAMES: Mapping[Metric, tuple[Sequence[str], Sequence[str]]] = {
    "squad2": (("exact", "f1"), ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")),
    "hotpotqa": (("em", "f1"), ()),
}


def official(
    metric: Metric,
    scores: Sequence[Sequence[Mapping[str, float]]],
    correct: Sequence[Sequence[bool | None]],
) -> dict[str, Estimate]:
    """The metric as means by name, the headline one first, over problems with one or more samples each.

    ``scores`` are results of ``answer_scores`` (empty: unscored), ``correct`` the verdicts (None: unscored).
    """
    if metric == "pass@k":
        most = max(map(len, correct), default=1)
        return {f"pass@{k}": estimate([_pass(c, k) for c in correct]) for k in dict.fromkeys((1, most))}
    if metric == "accuracy":
        return {"accuracy": estimate([share(c) for c in correct])}
    everywhere, somewhere = _NAMES[metric]
    values = {name: [_mean_of(name, samples) for samples in scores] for name in (*everywhere, *somewhere)}
    for name in somewhere:
        values[name] = [value for value in values[name] if value is not None]
    return {name: estimate(value) for name, value in values.items() if value}


def share(correct: Sequence[bool | None]) -> float | None:
    """Share of correct answers among the scored samples of one problem; None if none was scored."""
    known = [float(c) for c in correct if c is not None]
    return mean(known) if known else None


def _mean_of(name: str, samples: Sequence[Mapping[str, float]]) -> float | None:
    """Mean of a score over the samples of one problem that have it; None if none has."""
    having = [sample[name] for sample in samples if name in sample]
    return mean(having) if having else None


def _pass(correct: Sequence[bool | None], k: int) -> float | None:
    known = [c for c in correct if c is not None]
    return pass_at_k(len(known), sum(known), k) if len(known) >= k else None
