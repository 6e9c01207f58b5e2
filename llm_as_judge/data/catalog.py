"""The table of all benchmarks, and the official metric of a dataset."""

from collections.abc import Collection, Mapping

from llm_as_judge.answers.metrics import Metric
from llm_as_judge.data.benchmarks import commonsenseqa, gsm8k, hotpotqa, humaneval, math, mbpp, mmlu, squad2
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.types import Domain

#: A record that several entries recognise belongs to the last of them.
DATASETS: Mapping[str, Dataset] = {
    module.__name__.rpartition(".")[2]: module.DATASET
    for module in (gsm8k, math, squad2, hotpotqa, humaneval, mbpp, mmlu, commonsenseqa)
}


def metric_of(dataset: str, domains: Collection[Domain]) -> Metric:
    """The official metric of ``dataset``; for data of no benchmark, the usual one of its domains."""
    if known := DATASETS.get(dataset):
        return known.metric
    return "pass@k" if set(domains) == {"code"} else "accuracy"
