"""The eight benchmarks by name: how each one's raw record becomes a problem, and what its own answer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llm_as_judge.datasets import commonsenseqa, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.datasets.record import Record
from llm_as_judge.types import Domain, Problem


@dataclass(frozen=True, slots=True)
class Dataset:
    """``parse`` and ``golds`` raise ``DataError`` with the reason. ``golds``: replies that must all be judged correct.

    ``split_of``: the published split of a record, where one release file holds several.
    """

    domain: Domain
    parse: Callable[[Record], Problem]
    golds: Callable[[Record], tuple[str, ...]]
    split_of: Callable[[Record], str] | None = None


DATASETS: Mapping[str, Dataset] = {
    "gsm8k": Dataset("math", gsm8k.parse, gsm8k.golds),
    "math": Dataset("math", math.parse, math.golds),
    "squad2": Dataset("qa", squad2.parse, squad2.golds),
    "hotpotqa": Dataset("qa", hotpotqa.parse, hotpotqa.golds),
    "humaneval": Dataset("code", humaneval.parse, humaneval.golds),
    "mbpp": Dataset("code", mbpp.parse, mbpp.golds, mbpp.split_of),
    "mmlu": Dataset("qa", mmlu.parse, mmlu.golds),
    "commonsenseqa": Dataset("qa", commonsenseqa.parse, commonsenseqa.golds),
}
