"""Summary of an evaluation's records: official metrics, accuracies, failures and costs.

The official metric is the one that ``data.catalog.metric_of`` chooses, averaged under its published name. Neither the
reward nor an LLM judge is involved; data without such a metric may have a judge of its own. A workflow that failed gave
no answer and counts 0, also if the right answer is that there is none. Infrastructure faults are counted and left out.
Where no usual scorer decided, the rules did, and the name says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llm_as_judge.answers.metrics import Metric
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.analysis import first_fatal
from llm_as_judge.evaluation.intervals import Estimate, accuracy, as_json, estimate, mean, pass_at_k
from llm_as_judge.files import picked
from llm_as_judge.types import Domain, Group, in_order
from llm_as_judge.workflow.shapes import name_of

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


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares in [0, 1] with 95 % intervals over problems; counts are of workflows, most frequent first."""

    overall: Estimate  # accuracy by the official verdict
    score: Estimate | None  # mean score; None if the verdicts are right and wrong only
    domains: Mapping[Domain, Estimate]
    valid_rate: Estimate
    official: Mapping[str, Mapping[str, Estimate]]  # by dataset and metric, the headline metric first
    by_problem: tuple[float | None, ...]  # share of correct samples; None: unscored
    between: tuple[float, float] | None  # accuracy if all abstentions were wrong, and if all were right; None: none
    abstained: int
    judged_by: str  # the tier of the first abstention
    unscored: Mapping[str, int]  # by reason
    outcomes: Mapping[str, int]
    invalid: Mapping[str, int]  # workflows that did not run, by fatal lint code
    shapes: Mapping[Domain, Mapping[str, int]]  # workflows by the name of their shape, else by shape
    idle: float  # share of workflows that called no operator
    tokens: float  # of the executor, per workflow
    seconds: float  # per workflow
    cost: float  # of all
    repaired: float = 0.0  # share of workflows that the policy wrote again
    first: "Summary | None" = None  # as if there were only first attempts; None if nothing was repaired

    def as_json(self) -> dict[str, Any]:
        first = self.first
        return {
            **as_json({"overall": self.overall, "valid_rate": self.valid_rate, **self.domains}),
            "official": {
                dataset: {"name": next(iter(own)), **as_json(own), "problems": {name: e.n for name, e in own.items()}}
                for dataset, own in self.official.items()
            },
            "score": self.score and self.score.value,
            "problems": self.overall.n,
            "unscored": sum(self.unscored.values()),
            "unscored_reasons": self.unscored,
            "without_operators": self.idle,
            "executor_tokens": self.tokens,
            **picked(self, "abstained between outcomes invalid shapes seconds cost repaired"),
            "first_attempt": first
            and as_json({"overall": first.overall, "valid_rate": first.valid_rate}) | {"executor_tokens": first.tokens},
        }


def summarise(groups: Sequence[Group]) -> Summary:
    """Sum up ``groups``, which are in the order of problems."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    runs = [r for r in rollouts if r.execution.outcome != "fault"]
    domains, by_problem = divided(groups, "domain"), right(groups)
    open_ = [r.verdict.tier for r in rollouts if r.verdict.abstained]
    return Summary(
        overall=estimate(by_problem),
        score=mean_score(groups),
        domains={d: estimate(right(own)) for d, own in domains.items()},
        valid_rate=accuracy([r.valid for r in runs]),
        official={name: official(own) for name, own in divided(groups, "dataset").items()},
        by_problem=by_problem,
        between=(_with_abstentions(groups, False), _with_abstentions(groups, True)) if open_ else None,
        abstained=len(open_),
        judged_by=next(iter(open_), ""),
        unscored=_counted(r.trouble or r.execution.outcome for r in rollouts if r.verdict.correct is None),
        outcomes=_counted(r.execution.outcome for r in rollouts),
        invalid=_counted(first_fatal(r) or r.execution.error for r in runs if r.execution.outcome == "invalid"),
        shapes={
            d: _counted(name_of(r.workflow) or r.execution.shape or "no operator" for g in own for r in g.rollouts)
            for d, own in domains.items()
        },
        idle=mean([float(not r.execution.calls) for r in runs]),
        tokens=mean([float(r.tokens) for r in runs]),
        seconds=mean([r.seconds for r in runs]),
        cost=sum(r.cost for r in rollouts),
        repaired=mean([float(bool(r.attempts)) for r in rollouts]),
        first=summarise([replace(g, rollouts=[r.first for r in g.rollouts]) for g in groups])
        if any(r.attempts for r in rollouts)
        else None,
    )


def by_benchmark(groups: Sequence[Group], source: str) -> dict[str, Summary]:
    """Sum up each benchmark; problems without a dataset are named after their file, ``source``."""
    rows: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        dataset = group.problem.question.dataset or "custom"
        name = group.problem.benchmark or (source if dataset == "custom" else dataset)
        rows.setdefault((name, dataset), []).append(group)
    found: dict[str, Summary] = {}
    for (benchmark, dataset), own in rows.items():
        name = f"{benchmark}_{dataset}" if benchmark in found else benchmark
        found[name] = replace(summarise(own), official={name: official(own)})
    return found


def official(groups: Sequence[Group]) -> dict[str, Estimate]:
    """Return the metric as means by name, the headline one first, over the groups of a dataset's problems."""
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
    """Return the share of right rollouts of each problem; None if none was scored."""
    return tuple(share([verdict.correct for verdict in group.verdicts]) for group in groups)


def divided(groups: Sequence[Group], by: Literal["domain", "dataset"]) -> dict[str, list[Group]]:
    """Divide the groups by domain, in the order of tables, or by dataset."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(getattr(group.problem.question, by), []).append(group)
    return {name: found[name] for name in (in_order(found) if by == "domain" else found)}


def share(scores: Sequence[float | None]) -> float | None:
    """Average over the scored samples of one problem, of correct answers their share; None if none was scored."""
    known = [float(score) for score in scores if score is not None]
    return mean(known) if known else None


def mean_score(groups: Sequence[Group]) -> Estimate | None:
    """Average the scores of the rollouts of problems; None if the verdicts are right and wrong only."""
    scored = any(verdict.score is not None for group in groups for verdict in group.verdicts)
    return estimate(_worth(groups)) if scored else None


def _worth(groups: Sequence[Group]) -> list[float | None]:
    return [share([v.worth for v in group.verdicts if v.correct is not None]) for group in groups]


def _with_abstentions(groups: Sequence[Group], taken: bool) -> float:
    """Compute the accuracy with every abstention counted as right, if they are ``taken`` for that, or as wrong."""
    shares = [share([taken if v.abstained else v.correct for v in group.verdicts]) for group in groups]
    return mean([s for s in shares if s is not None])


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
