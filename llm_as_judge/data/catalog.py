"""The table of all benchmarks, and the official metric of a dataset."""

from collections.abc import Mapping

from llm_as_judge.answers.metrics import Metric
from llm_as_judge.data.benchmarks import choices, contests, hotpotqa, humaneval, math, mbpp, squad2
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.types import Question

#: A record that several entries recognise belongs to the last of them.
DATASETS: Mapping[str, Dataset] = {
    "gsm8k": math.GSM8K,
    "math": math.DATASET,
    "squad2": squad2.DATASET,
    "hotpotqa": hotpotqa.DATASET,
    "humaneval": humaneval.DATASET,
    "mbpp": mbpp.DATASET,
    "mmlu": choices.DATASET,
    "commonsenseqa": choices.COMMONSENSEQA,
    "humaneval_plus": humaneval.PLUS,
    "mbpp_plus": mbpp.PLUS,
    "apps": contests.APPS,
    "livecodebench": contests.LIVECODEBENCH,
    "math500": math.MATH500,
    "aime24": math.AIME24,
    "aime25": math.AIME25,
    "gpqa_diamond": choices.GPQA,
    "mmlu_pro": choices.PRO,
}


def metric_of(question: Question) -> Metric:
    """Return the official metric of a question's dataset; for data of no benchmark, the usual one of its domain."""
    if known := DATASETS.get(question.dataset):
        return known.metric
    return "choice" if question.like == "choice" else "pass@k" if question.kind == "code" else "accuracy"
