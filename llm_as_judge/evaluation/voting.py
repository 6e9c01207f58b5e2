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

import msgspec

from llm_as_judge.answers.code import defining_block
from llm_as_judge.answers.metrics import same_answers
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.intervals import mean
from llm_as_judge.evaluation.official import share
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.events import RolloutEvent
from llm_as_judge.judging.own import AnyJudge
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.sandbox.public_test import RunCode, first_failure
from llm_as_judge.types import Kind, Problem, Question
from llm_as_judge.workflow.shapes import SHAPES, workflow
from llm_as_judge.workflow.text import class_text

#: Temperature of the executor.
TEMPERATURE = 0.7
#: The plan of a draft.
DRAFTS: Mapping[Kind, str] = {"math": "answer", "code": "code", "qa": "answer"}
FEWEST, MOST = 3, 64
#: Most frequent reference answers that are tried as constants, besides the empty one.
_TRIED = 10


async def self_consistency(
    problems: Sequence[Problem], parts: RolloutParts, run_code: RunCode, tokens: float,
    log: Callable[[int], AbstractContextManager[Ledger]],
) -> tuple[int, list[RolloutEvent]]:  # fmt: skip
    """Number of drafts, and one record for each problem with the tokens, cost and seconds of all its drafts.

    ``parts`` run at ``TEMPERATURE``; ``tokens`` are the executor tokens to reach, ``log`` opens the ledger of a number.
    """
    author = Given(lambda question: workflow(SHAPES[DRAFTS[question.kind]], question.kind))
    drafts = FEWEST
    while True:
        with log(drafts) as known:
            records = await evaluate(problems, author, parts, samples=drafts, log=known)
        spent = mean([float(r.executor_tokens) for r in records if r.outcome != "fault"])
        if not spent * drafts < tokens or drafts == MOST:
            break
        drafts = min(MOST, max(drafts + 1, math.ceil(tokens / spent) if spent else MOST))
    groups = [records[place : place + drafts] for place in range(0, len(records), drafts)]
    chosen = []
    for problem, own in zip(problems, groups, strict=True):
        costs = {name: sum(getattr(draft, name) for draft in own) for name in ("executor_tokens", "cost", "seconds")}
        chosen.append(msgspec.structs.replace(await _chosen(problem, own, run_code), **costs))
    return drafts, chosen


async def _chosen(problem: Problem, drafts: Sequence[RolloutEvent], run_code: RunCode) -> RolloutEvent:
    """The draft that is answered with: the first of those with the most frequent answer."""
    question = problem.question
    answered = [draft for draft in drafts if draft.outcome == "finished"] or list(drafts)
    if question.kind == "code":
        for draft in answered:
            source = defining_block(draft.answer or "", question.entry_point or "", question.text)
            if await first_failure(run_code, question, source) is None:
                return draft
        return answered[0]
    metric = metric_of(question)
    keys = [same_answers(metric, draft.answer or "", question) for draft in answered]
    return answered[keys.index(Counter(keys).most_common(1)[0][0])]


async def best_constants(training: Sequence[Problem], judge: AnyJudge) -> dict[str, str]:
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
        answer = answers.get(question.dataset, "")
        return class_text([], f"return {answer!r}, 0.0", question.kind == "code")

    return Given(source)
