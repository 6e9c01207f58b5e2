"""Agreement of the LLM judge with the rules: it gets the same inputs as in training."""

from __future__ import annotations

from dataclasses import replace

from helpers.rollouts import problem, rollout

from llm_as_judge.evaluation.agreement import agreement
from llm_as_judge.types import Exchange, Problem, Verdict


async def test_the_judge_learns_that_an_answer_was_cut_off() -> None:
    cut_offs: list[bool] = []

    class Judge:
        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            cut_offs.append(cut_off)
            return Verdict(not cut_off, "llm")

    whole = rollout(problem("a", "math"), True)
    call = replace(whole.execution.calls[0], exchanges=(Exchange("?", "an answer", "length", 9, 9, 0.0, 0.1),))
    cut = replace(whole, execution=replace(whole.execution, calls=(call,)))
    result = await agreement(Judge(), [whole, cut])
    assert cut_offs == [False, True]
    assert (result.pairs, result.agreement, result.false_rejects) == (2, 0.5, 1)
