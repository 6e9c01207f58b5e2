"""The LLM judge beside the rules: it is told of an answer what training tells it."""

from __future__ import annotations

from dataclasses import replace

from helpers.rollouts import problem, rollout

from llm_as_judge.evaluation.agreement import agreement
from llm_as_judge.types import Exchange, Problem, Verdict


async def test_a_judge_is_told_that_an_answer_was_cut_off() -> None:
    told: list[bool] = []

    class Judge:
        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            told.append(cut_off)
            return Verdict(not cut_off, "llm")

    whole = rollout(problem("a", "math"), True)
    call = replace(whole.execution.calls[0], exchanges=(Exchange("?", "an answer", "length", 9, 9, 0.0, 0.1),))
    cut = replace(whole, execution=replace(whole.execution, calls=(call,)))
    result = await agreement(Judge(), [whole, cut])
    assert told == [False, True]
    assert (result.pairs, result.agreement, result.false_rejects) == (2, 0.5, 1)
