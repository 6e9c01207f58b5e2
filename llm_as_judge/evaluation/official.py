"""The official metric of each benchmark, under the name that its paper or evaluation script uses.

Neither the reward nor an LLM judge is involved. A workflow that failed gave no answer and counts 0, also if the right
answer is that there is none. Infrastructure faults are counted and left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.answers.qa_metrics import hotpot_em, hotpot_f1, squad_em, squad_f1
from llm_as_judge.data.dataset import Metric
from llm_as_judge.evaluation.metrics import Estimate, as_json, estimate, mean, pass_at_k
from llm_as_judge.types import Reference


@dataclass(frozen=True, slots=True)
class Official:
    """Means over problems by name, the headline metric first."""

    values: Mapping[str, Estimate]

    @property
    def name(self) -> str:
        return next(iter(self.values))

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **as_json(self.values),
            "problems": {name: e.n for name, e in self.values.items()},
        }


def answer_scores(metric: Metric, answer: str | None, reference: Reference) -> dict[str, float]:
    """Scores of one answer by the official script of a QA benchmark (None: no answer); empty for other metrics."""
    said = None if answer is None else extract_answer(answer, "qa")
    if metric == "hotpotqa":
        em, f1 = (0.0 if said is None else score(said, reference.answers) for score in (hotpot_em, hotpot_f1))
        return {"em": em, "f1": f1}
    if metric == "squad2":
        golds = () if reference.unanswerable else reference.answers
        em, f1 = (0.0 if said is None else score(said, golds) for score in (squad_em, squad_f1))
        apart = {"HasAns_exact": em, "HasAns_f1": f1} if golds else {"NoAns_exact": em, "NoAns_f1": f1}
        return {"exact": em, "f1": f1} | apart
    return {}


_NAMES: Mapping[Metric, Sequence[str]] = {
    "squad2": ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"),
    "hotpotqa": ("em", "f1"),
}


def official(
    metric: Metric,
    scores: Sequence[Sequence[Mapping[str, float]]],
    correct: Sequence[Sequence[bool | None]],
) -> Official:
    """The metric over problems with one or more samples each: ``scores`` are results of ``answer_scores`` (empty:
    unscored), ``correct`` the verdicts (None: unscored).
    """
    if metric == "pass@k":
        most = max(map(len, correct), default=1)
        return Official({f"pass@{k}": estimate([_pass(c, k) for c in correct]) for k in dict.fromkeys((1, most))})
    if metric == "accuracy":
        return Official({"accuracy": estimate([share(c) for c in correct])})
    by_name = {
        name: [mean([one[name] for one in s if name in one]) if any(name in one for one in s) else None for s in scores]
        for name in _NAMES[metric]
    }
    # Questions with an answer do not count in the mean over those without one.
    values = {name: v if name in _NAMES[metric][:2] else [x for x in v if x is not None] for name, v in by_name.items()}
    return Official({name: estimate(v) for name, v in values.items() if v})


def share(correct: Sequence[bool | None]) -> float | None:
    """Share of correct answers among the scored samples of one problem; None if none was scored."""
    known = [float(c) for c in correct if c is not None]
    return mean(known) if known else None


def _pass(correct: Sequence[bool | None], k: int) -> float | None:
    known = [c for c in correct if c is not None]
    return pass_at_k(len(known), sum(known), k) if len(known) >= k else None
