"""The eight benchmarks by name: how each one's raw record becomes a problem, what its own answer is, and by what metric
its authors report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from llm_as_judge.datasets import commonsenseqa, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.datasets.record import Record
from llm_as_judge.types import Domain, Problem

#: ``squad2``: exact match and token F1, questions without an answer apart (Rajpurkar et al. 2018). ``hotpotqa``: exact
#: match and F1 of the answer (Yang et al. 2018). ``pass@k``: Chen et al. 2021. ``accuracy``: the share right.
Metric = Literal["accuracy", "pass@k", "squad2", "hotpotqa"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """``parse`` and ``golds`` raise ``DataError`` with the reason. ``golds``: replies that must all be judged correct.

    ``split_of``: the published split of a record, where one release file holds several.
    """

    domain: Domain
    parse: Callable[[Record], Problem]
    golds: Callable[[Record], tuple[str, ...]]
    metric: Metric = "accuracy"
    split_of: Callable[[Record], str] | None = None


DATASETS: Mapping[str, Dataset] = {
    "gsm8k": Dataset("math", gsm8k.parse, gsm8k.golds),
    "math": Dataset("math", math.parse, math.golds),
    "squad2": Dataset("qa", squad2.parse, squad2.golds, "squad2"),
    "hotpotqa": Dataset("qa", hotpotqa.parse, hotpotqa.golds, "hotpotqa"),
    "humaneval": Dataset("code", humaneval.parse, humaneval.golds, "pass@k"),
    "mbpp": Dataset("code", mbpp.parse, mbpp.golds, "pass@k", mbpp.split_of),
    "mmlu": Dataset("qa", mmlu.parse, mmlu.golds),
    "commonsenseqa": Dataset("qa", commonsenseqa.parse, commonsenseqa.golds),
}


def metric_of(dataset: str, domains: Collection[Domain]) -> Metric:
    """The metric that ``dataset`` is reported by; of data that are no benchmark's, by their domains."""
    if known := DATASETS.get(dataset):
        return known.metric
    return "pass@k" if set(domains) == {"code"} else "accuracy"
