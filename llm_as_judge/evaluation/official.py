"""Averages the official metric of a benchmark, which ``data.catalog.metric_of`` chooses, under its published name.

Neither the reward nor an LLM judge is involved; data without such a metric may have a judge of its own. A
workflow that failed gave no answer and counts 0, also if the right answer is that there is none. Infrastructure faults
are counted and left out. Where no usual scorer decided, the rules did, and the name says so.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from llm_as_judge.answers.metrics import Metric
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.intervals import Estimate, estimate, mean, pass_at_k
from llm_as_judge.types import Group, in_order

BY_RULES, MEAN_SCORE = "accuracy by rules", "mean score"
_OWN: Mapping[str, str] = {
    "function": "right by judge.function", "rubric": "right by judge.rubric", "relative": "wins over untrained",
}  # fmt: skip
#: Scores whose mean is over all problems, then those that only some problems have.
_NAMES: Mapping[Metric, tuple[Sequence[str], Sequence[str]]] = {
    "gsm8k": (("flexible-extract", "strict-match"), ()),
    "math": (("math_verify",), ()),
    "choice": (("accuracy",), ()),
    "squad2": (("exact", "f1"), ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")),
    "hotpotqa": (("em", "f1"), ()),
}


def official(groups: Sequence[Group]) -> dict[str, Estimate]:
    """The metric as means by name, the headline one first, over the groups of a dataset's problems."""
    metric, verdicts = metric_of(groups[0].problem.question), [group.verdicts for group in groups]
    known = [[verdict.correct for verdict in own if verdict.correct is not None] for own in verdicts]
    scores = [[verdict.scores for verdict in own] for own in verdicts]
    if named := {_OWN[verdict.tier] for own in verdicts for verdict in own if verdict.tier in _OWN}:
        return {named.pop(): estimate(right(groups)), MEAN_SCORE: estimate(_worth(groups))}
    if metric == "pass@k":
        sizes = dict.fromkeys((1, max(map(len, verdicts))))
        shares = {k: [pass_at_k(len(c), sum(c), k) if len(c) >= k else None for c in known] for k in sizes}
        return {f"pass@{k}": estimate(passed) for k, passed in shares.items()}
    scored = any(any(samples) for samples in scores)
    if metric not in _NAMES or (not scored and any(known)):
        return {BY_RULES: estimate(right(groups))}
    everywhere, somewhere = _NAMES[metric]
    values = {name: [share([s.get(name) for s in own]) for own in scores] for name in (*everywhere, *somewhere)}
    for name in somewhere:
        values[name] = [value for value in values[name] if value is not None]
    return {name: estimate(value) for name, value in values.items() if value}


def right(groups: Sequence[Group]) -> tuple[float | None, ...]:
    """Share of right rollouts of each problem; None if none was scored."""
    return tuple(share([verdict.correct for verdict in group.verdicts]) for group in groups)


def divided(groups: Sequence[Group], by: Literal["domain", "dataset"]) -> dict[str, list[Group]]:
    """The groups of each domain, in the order of tables, or of each dataset."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(getattr(group.problem.question, by), []).append(group)
    return {name: found[name] for name in (in_order(found) if by == "domain" else found)}


def share(scores: Sequence[float | None]) -> float | None:
    """Mean over the scored samples of one problem, of correct answers their share; None if none was scored."""
    known = [float(score) for score in scores if score is not None]
    return mean(known) if known else None


def mean_score(groups: Sequence[Group]) -> Estimate | None:
    """Mean score of the rollouts of problems; None if the verdicts are right and wrong only."""
    scored = any(verdict.score is not None for group in groups for verdict in group.verdicts)
    return estimate(_worth(groups)) if scored else None


def _worth(groups: Sequence[Group]) -> list[float | None]:
    return [share([v.worth for v in group.verdicts if v.correct is not None]) for group in groups]
