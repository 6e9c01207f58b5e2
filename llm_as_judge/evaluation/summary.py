"""Summary of an evaluation's records: official metrics, accuracies, failures and costs."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.evaluation.analysis import first_fatal
from llm_as_judge.evaluation.intervals import Estimate, accuracy, as_json, estimate, mean
from llm_as_judge.evaluation.official import mean_score, official, share
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import picked
from llm_as_judge.types import Domain, Problem, in_order
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
            "first_attempt": self.first and _outline(self.first),
        }


def summarise(records: Sequence[RolloutEvent]) -> Summary:
    """``records`` are in the order of problems."""
    problems = [list(samples) for _, samples in itertools.groupby(records, key=lambda r: r.index)]
    by_problem = tuple(share([r.correct for r in samples]) for samples in problems)
    domains = in_order(r.domain for r in records)
    runs = [r for r in records if r.outcome != "fault"]
    by_dataset: dict[str, list[list[RolloutEvent]]] = {}
    for samples in problems:
        by_dataset.setdefault(samples[0].dataset, []).append(samples)
    return Summary(
        overall=estimate(by_problem),
        score=mean_score(problems),
        domains={
            d: estimate([s for s, p in zip(by_problem, problems, strict=True) if p[0].domain == d]) for d in domains
        },
        valid_rate=accuracy([r.outcome == "finished" for r in runs]),
        official={name: official(own) for name, own in by_dataset.items()},
        by_problem=by_problem,
        between=_between(problems) if any(r.abstained for r in records) else None,
        abstained=sum(r.abstained for r in records),
        unscored=_counted(r.reason or r.error or r.outcome for r in records if r.correct is None),
        outcomes=_counted(r.outcome for r in records),
        invalid=_counted(first_fatal(r) or r.error for r in records if r.outcome == "invalid"),
        shapes={
            d: _counted(name_of(r.source) or r.shape or "no operator" for r in records if r.domain == d)
            for d in domains
        },
        idle=mean([float(not r.operators) for r in runs]),
        tokens=mean([float(r.executor_tokens) for r in runs]),
        seconds=mean([r.seconds for r in runs]),
        cost=sum(r.cost for r in records),
        repaired=mean([float(bool(r.attempts)) for r in records]),
        first=summarise([r.first for r in records]) if any(r.attempts for r in records) else None,
    )


def by_benchmark(records: Sequence[RolloutEvent], problems: Sequence[Problem], source: str) -> dict[str, Summary]:
    """A summary for each benchmark; problems without a dataset are named after their file, ``source``."""
    unnamed = "custom" if source in DATASETS else source
    rows: dict[tuple[str, str], list[RolloutEvent]] = {}
    for record in records:
        dataset = unnamed if record.dataset in ("", "custom") else record.dataset
        named = msgspec.structs.replace(record, dataset=dataset)
        rows.setdefault((problems[record.index].benchmark or dataset, dataset), []).append(named)
    found: dict[str, Summary] = {}
    for (benchmark, dataset), own in rows.items():
        name, summary = f"{benchmark}_{dataset}" if benchmark in found else benchmark, summarise(own)
        found[name] = replace(summary, official={name: summary.official[dataset]})
    return found


def _outline(summary: Summary) -> dict[str, Any]:
    shares = as_json({"overall": summary.overall, "valid_rate": summary.valid_rate})
    return {**shares, "executor_tokens": summary.tokens}


def _between(problems: Sequence[Sequence[RolloutEvent]]) -> tuple[float, float]:
    """Accuracy with every abstention counted as wrong, and as right."""

    def with_abstentions(taken: bool) -> float:
        shares = [share([taken if r.abstained else r.correct for r in samples]) for samples in problems]
        return mean([s for s in shares if s is not None])

    return with_abstentions(False), with_abstentions(True)


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
