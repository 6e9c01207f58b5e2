"""Choosing among the named workflows without reinforcement learning, from as many executor tokens as GRPO uses.

Every named workflow runs on training problems until the tokens are spent; three choosers learn from the table of right
and wrong answers, and are measured on the held-out problems:

- *best per domain*: the workflow that was right most often in the problem's domain;
- *nearest neighbours*: right most often on the eight training problems whose words are most alike (cosine of tf-idf);
- *logistic regression*: a bag of words predicts for each workflow whether it will be right.

Expected accuracy counts first; among equals the cheaper workflow wins (``PRICE``).

    python benchmarks/methods/choosers.py --tokens 600000
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from common import arguments, report
from torch import Tensor

from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.baselines import measure
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import DOMAINS, Question
from llm_as_judge.workflow.shapes import SHAPES, shapes_of, workflow

PRICE = 1e-4  # accuracy that a token must bring
NEIGHBOURS = 8
SWEEP = 18  # training problems measured between two looks at the tokens
Chooser = Callable[[Sequence[Question]], Tensor]  # [N, workflows] expected accuracies


def words(question: Question) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", f"{question.domain} {question.statement}".lower()))


class Bags:
    """Vectors of words with inverse document frequencies, learned from ``questions``."""

    def __init__(self, questions: Sequence[Question]) -> None:
        found = Counter(word for question in questions for word in words(question))
        self._column = {word: i for i, word in enumerate(found)}
        self._rarity = torch.tensor([math.log(len(questions) / n) + 1 for n in found.values()])

    def __call__(self, questions: Sequence[Question]) -> Tensor:
        """Embed texts as [N, words], rows of length 1."""
        made = torch.zeros(len(questions), len(self._column))
        for row, question in zip(made, questions, strict=True):
            for word, count in words(question).items():
                if word in self._column:
                    row[self._column[word]] = math.log1p(count)
        return torch.nn.functional.normalize(made * self._rarity, dim=-1)


def per_domain(questions: Sequence[Question], right: Tensor) -> Chooser:
    numbers = torch.tensor([DOMAINS.index(question.domain) for question in questions])
    means = torch.stack([right[numbers == i].mean(0).nan_to_num() for i in range(len(DOMAINS))])
    return lambda asked: means[[DOMAINS.index(question.domain) for question in asked]]


def neighbours(questions: Sequence[Question], right: Tensor) -> Chooser:
    bags = Bags(questions)
    known = bags(questions)
    return lambda asked: right[(bags(asked) @ known.T).topk(min(NEIGHBOURS, len(known))).indices].mean(1)


def regression(questions: Sequence[Question], right: Tensor, steps: int = 300, decay: float = 1e-3) -> Chooser:
    bags = Bags(questions)
    inputs, model = bags(questions), torch.nn.Linear(len(bags([questions[0]])[0]), right.shape[1])
    torch.nn.init.zeros_(model.weight)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), right)
        (loss + decay * model.weight.square().sum()).backward()
        optimiser.step()
        optimiser.zero_grad()
    return lambda asked: model(bags(asked)).sigmoid().detach()


CHOOSERS: Mapping[str, Callable[[Sequence[Question], Tensor], Chooser]] = {
    "best per domain": per_domain,
    "nearest neighbours": neighbours,
    "logistic regression": regression,
}


async def run(config: Config, budget: int, limit: int | None) -> None:
    problems = heldout_problems(config.data, limit)
    sampled = open_problems(config, measured=False).sampler.sample(1000)
    training = list({problem.question.id: problem for problem in sampled}.values())
    names = shapes_of(load_operators(config.workflow.operators))
    questions: list[Question] = []
    right, tokens, spent = list[list[float]](), torch.zeros(len(names)), 0
    async with open_services(config, judging=False) as services:
        while spent < budget and len(questions) < len(training):
            drawn = training[len(questions) : len(questions) + SWEEP]
            matrix = await measure(drawn, services.official, shapes=names)
            for problem, group in zip(drawn, matrix.problems, strict=True):
                questions.append(problem.question)
                right.append([float(verdict.correct is True) for verdict in group.verdicts])
                used = torch.tensor([rollout.tokens for rollout in group.rollouts])
                tokens, spent = tokens + used, spent + int(used.sum())
        asked = [problem.question for problem in problems]
        for name, learn in CHOOSERS.items():
            expected = learn(questions, torch.tensor(right))(asked) - PRICE * tokens / len(questions)
            chosen = {q.id: names[int(i)] for q, i in zip(asked, expected.argmax(1), strict=True)}
            author = Given(lambda question, of=chosen: workflow(SHAPES[of[question.id]], question.domain))
            groups = await evaluate(problems, author, services.official)
            report(f"{name}, from {len(questions)} problems", groups, spent)


if __name__ == "__main__":
    asyncio.run(run(*arguments("Choosers of a workflow that learn without reinforcement learning")))
