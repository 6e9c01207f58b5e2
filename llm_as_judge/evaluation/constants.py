"""The best constant answer of each dataset, a baseline without calls: an empty one is right for half of SQuAD 2.0."""

from collections import Counter
from collections.abc import Mapping, Sequence

from llm_as_judge.evaluation.evaluate import Given
from llm_as_judge.evaluation.intervals import mean
from llm_as_judge.evaluation.official import share
from llm_as_judge.judging.judge import JudgeLike
from llm_as_judge.types import Problem, Question

#: Most frequent reference answers that are tried, besides the empty one.
_TRIED = 10


async def best_constants(training: Sequence[Problem], judge: JudgeLike) -> dict[str, str]:
    """The answer to every question of a dataset that is right most often on ``training`` problems."""
    found = {}
    for dataset in dict.fromkeys(problem.question.dataset for problem in training):
        own = [problem for problem in training if problem.question.dataset == dataset]
        frequent = Counter(problem.reference.answers[0] for problem in own if problem.reference.answers)
        right = {}
        for answer in ("", *(answer for answer, _ in frequent.most_common(_TRIED))):
            verdicts = [(await judge.verdict(problem, answer)).correct for problem in own]
            right[answer] = mean([share([correct]) or 0.0 for correct in verdicts])
        found[dataset] = max(right, key=lambda answer: right[answer])
    return found


def constant_author(answers: Mapping[str, str]) -> Given:
    """Writes workflows that answer with the constant of the question's dataset, empty for an unknown one."""

    def source(question: Question) -> str:
        parameters = "problem: str, entry_point: str" if question.domain == "code" else "problem: str"
        return (
            "class Workflow:\n"
            "    def __init__(self, name: str, llm_config, dataset):\n"
            "        self.llm = create_llm_instance(llm_config)\n\n"
            f"    async def __call__(self, {parameters}):\n"
            f"        return {answers.get(question.dataset, '')!r}, 0.0\n"
        )

    return Given(source)
