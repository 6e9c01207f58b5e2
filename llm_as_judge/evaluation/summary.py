"""Summary of an evaluation's records: official metrics, accuracies, failures and costs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.evaluation.analysis import first_fatal
from llm_as_judge.evaluation.intervals import Estimate, accuracy, as_json, estimate, mean
from llm_as_judge.evaluation.official import divided, mean_score, official, right, share
from llm_as_judge.files import picked
from llm_as_judge.types import Domain, Group
from llm_as_judge.workflow.shapes import name_of


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
    unscored: Mapping[str, int]  # by reason
    outcomes: Mapping[str, int]
    invalid: Mapping[str, int]  # workflows that did not run, by fatal lint code
    shapes: Mapping[Domain, Mapping[str, int]]  # workflows by plan, else by shape
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
    """``groups`` are in the order of problems."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    runs = [r for r in rollouts if r.execution.outcome != "fault"]
    domains, by_problem = divided(groups, "domain"), right(groups)
    abstained = sum(r.verdict.abstained for r in rollouts)
    return Summary(
        overall=estimate(by_problem),
        score=mean_score(groups),
        domains={d: estimate(right(own)) for d, own in domains.items()},
        valid_rate=accuracy([r.valid for r in runs]),
        official={name: official(own) for name, own in divided(groups, "dataset").items()},
        by_problem=by_problem,
        between=_between(groups) if abstained else None,
        abstained=abstained,
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
    """A summary for each benchmark; problems without a dataset are named after their file, ``source``."""
    unnamed = "custom" if source in DATASETS else source
    rows: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        dataset = group.problem.question.dataset
        dataset = unnamed if dataset in ("", "custom") else dataset
        rows.setdefault((group.problem.benchmark or dataset, dataset), []).append(group)
    found: dict[str, Summary] = {}
    for (benchmark, dataset), own in rows.items():
        name = f"{benchmark}_{dataset}" if benchmark in found else benchmark
        found[name] = replace(summarise(own), official={name: official(own)})
    return found


def _between(groups: Sequence[Group]) -> tuple[float, float]:
    """Accuracy with every abstention counted as wrong, and as right."""

    def with_abstentions(taken: bool) -> float:
        shares = [share([taken if v.abstained else v.correct for v in group.verdicts]) for group in groups]
        return mean([s for s in shares if s is not None])

    return with_abstentions(False), with_abstentions(True)


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
