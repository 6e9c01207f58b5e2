"""The eight benchmarks by name: how each one's raw record becomes a problem, what its own answer is, and by what metric
its authors report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from llm_as_judge.data.benchmarks import commonsenseqa, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.data.record import Record
from llm_as_judge.types import Domain, Problem

#: ``squad2``: exact match and token F1, questions without an answer apart (Rajpurkar et al. 2018). ``hotpotqa``: exact
#: match and F1 of the answer (Yang et al. 2018). ``pass@k``: Chen et al. 2021. ``accuracy``: the share right.
Metric = Literal["accuracy", "pass@k", "squad2", "hotpotqa"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """``recognises`` tells the benchmark's raw record by its fields. ``parse`` and ``golds`` raise ``DataError``
    with the reason. ``golds``: replies that must all be judged correct.

    ``split_of``: the published split of a record, where one release file holds several.
    """

    domain: Domain
    parse: Callable[[Record], Problem]
    golds: Callable[[Record], tuple[str, ...]]
    recognises: Callable[[Record], bool]
    metric: Metric = "accuracy"
    split_of: Callable[[Record], str] | None = None


def _with(*names: str) -> Callable[[Record], bool]:
    return lambda record: set(names) <= record.keys()


#: The first ones are recognised last: others have their fields too.
DATASETS: Mapping[str, Dataset] = {
    "gsm8k": Dataset(
        "math", gsm8k.parse, gsm8k.golds, lambda r: "question" in r and "#### " in str(r.get("answer", ""))
    ),
    "math": Dataset("math", math.parse, math.golds, _with("problem", "solution")),
    "squad2": Dataset("qa", squad2.parse, squad2.golds, _with("question", "context", "answers"), "squad2"),
    "hotpotqa": Dataset(
        "qa", hotpotqa.parse, hotpotqa.golds, _with("question", "answer", "context", "supporting_facts"), "hotpotqa"
    ),
    "humaneval": Dataset("code", humaneval.parse, humaneval.golds, _with("prompt", "entry_point", "test"), "pass@k"),
    "mbpp": Dataset(
        "code",
        mbpp.parse,
        mbpp.golds,
        lambda r: "test_list" in r and bool({"text", "prompt"} & r.keys()),
        "pass@k",
        mbpp.split_of,
    ),
    "mmlu": Dataset("qa", mmlu.parse, mmlu.golds, _with("question", "choices", "answer")),
    "commonsenseqa": Dataset("qa", commonsenseqa.parse, commonsenseqa.golds, _with("question", "answerKey")),
}


def metric_of(dataset: str, domains: Collection[Domain]) -> Metric:
    """The metric that ``dataset`` is reported by; of data that are no benchmark's, by their domains."""
    if known := DATASETS.get(dataset):
        return known.metric
    return "pass@k" if set(domains) == {"code"} else "accuracy"
