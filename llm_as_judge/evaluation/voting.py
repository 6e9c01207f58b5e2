"""Two baselines of ``compare``: self-consistency, and the best constant answer of each dataset.

Self-consistency (Wang et al. 2023) is several drafts of an answer at a high temperature, and a plain majority of them;
for code, the first draft that passes the public tests. There are as many drafts as make it cost at least as many
executor tokens as the method that it is compared with. A constant makes no calls: an empty one is right for half of
SQuAD 2.0.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from llm_as_judge.answers.code import defining_block
from llm_as_judge.answers.metrics import same_answers
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.intervals import mean
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.judging.own import AnyJudge
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.sandbox.public_test import RunCode, first_failure
from llm_as_judge.types import Group, Kind, Problem, Rollout
from llm_as_judge.workflow.shapes import SHAPES, workflow
from llm_as_judge.workflow.writing import class_text

#: Temperature of the executor.
TEMPERATURE = 0.7
#: The shape of a draft.
DRAFTS: Mapping[Kind, str] = {"math": "answer", "code": "code", "qa": "answer"}
FEWEST, MOST = 3, 64
#: Most frequent reference answers that are tried as constants, besides the empty one.
_TRIED = 10


async def self_consistency(
    problems: Sequence[Problem], parts: RolloutParts, run_code: RunCode, tokens: float,
    log: Callable[[int], AbstractContextManager[Ledger]],
) -> tuple[int, list[Group]]:  # fmt: skip
    """Return the number of drafts, and one rollout for each problem, whose run has the calls and seconds of all drafts.

    ``parts`` run at ``TEMPERATURE``; ``tokens`` are the executor tokens to reach, ``log`` opens the ledger of a number.
    """
    author = Given(lambda question: workflow(SHAPES[DRAFTS[question.kind]], question.kind))
    drafts = FEWEST
    while True:
        with log(drafts) as known:
            groups = await evaluate(problems, author, parts, samples=drafts, log=known)
        runs = [rollout.execution for group in groups for rollout in group.rollouts]
        spent = mean([float(run.tokens) for run in runs if run.outcome != "fault"])
        if not spent * drafts < tokens or drafts == MOST:
            break
        drafts = min(MOST, max(drafts + 1, math.ceil(tokens / spent) if spent else MOST))
    voted = []
    for group in groups:
        chosen = await _chosen(group, run_code)
        calls = tuple(call for draft in group.rollouts for call in draft.calls)
        run = replace(chosen.execution, calls=calls, seconds=sum(draft.seconds for draft in group.rollouts))
        voted.append(Group(group.problem, [replace(chosen, execution=run)]))
    return drafts, voted


async def _chosen(group: Group, run_code: RunCode) -> Rollout:
    """Choose the draft that is answered with: the first of those with the most frequent answer."""
    question = group.problem.question
    answered = [draft for draft in group.rollouts if draft.valid] or list(group.rollouts)
    if question.kind == "code":
        for draft in answered:
            source = defining_block(draft.execution.answer or "", question.entry_point or "", question.text)
            if await first_failure(run_code, question, source) is None:
                return draft
        return answered[0]
    metric = metric_of(question)
    keys = [same_answers(metric, draft.execution.answer or "", question) for draft in answered]
    return answered[keys.index(Counter(keys).most_common(1)[0][0])]


async def best_constants(training: Sequence[Problem], judge: AnyJudge) -> dict[str, str]:
    """Find the answer to every question of a dataset that is right most often on ``training`` problems."""
    found = {}
    for dataset in dict.fromkeys(problem.question.dataset for problem in training):
        own = [problem for problem in training if problem.question.dataset == dataset]
        frequent = Counter(problem.reference.answers[0] for problem in own if problem.reference.answers)
        right = {}
        for answer in ("", *(answer for answer, _ in frequent.most_common(_TRIED))):
            right[answer] = mean([(await judge.verdict(problem, answer)).correct is True for problem in own])
        found[dataset] = max(right, key=lambda answer: right[answer])
    return found


def constant_author(answers: Mapping[str, str]) -> Given:
    """Return an author of workflows that answer with the constant of the question's dataset, empty if it is unknown."""
    return Given(lambda q: class_text([], f"return {answers.get(q.dataset, '')!r}, 0.0", q.kind == "code"))
