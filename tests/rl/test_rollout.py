"""Claims about collecting rollouts: order, concurrency, and whose fault a failure is."""

import asyncio
from dataclasses import replace
from typing import Any, get_args

import pytest
from helpers.tables import tables
from helpers.tiny import EchoRunner, LuckyJudge, problem, ten_or_minus_five
from test_pipeline import Slow as Noting

from llm_as_judge.errors import ProviderError
from llm_as_judge.rl.rollout import RolloutParts, collect, extract_code
from llm_as_judge.types import Completion, Execution, Outcome, Problem, Question, Reward, Rollout, Verdict

TABLES = tables(__file__)


def completion(text: str) -> Completion:
    return Completion(text, (1,), (2,), (0.0,), "stop")


async def collected(texts: list[str], **parts: Any) -> tuple[Rollout, ...]:
    defaults: dict[str, Any] = {"runner": EchoRunner(), "judge": LuckyJudge(), "reward": ten_or_minus_five}
    (group,) = await collect([problem(0)], [[completion(t) for t in texts]], RolloutParts(**{**defaults, **parts}))
    return tuple(group.rollouts)


def test_code_is_unwrapped_and_never_repaired() -> None:
    cases = TABLES["replies"]
    assert {text: extract_code(text) for text in cases} == cases
    for text in ("b = 1\n```", "b = 1\n```\nThis adds.", "b = 1\n```\n```python\nno = 1\n```", "b = 1"):
        assert extract_code(text, "```python\na = 1\n").strip() == "a = 1\nb = 1", text


async def test_runs_overlap_in_order_each_with_its_own_seed() -> None:
    class Slow(EchoRunner):
        running = most = 0

        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.02 if source == "first" else 0.001)
            self.running -= 1
            return await super().run(source, question)

    runner = Slow()
    rollouts = await collected(["first", *["7"] * 12, "third"], runner=runner, concurrency=4)
    assert [r.completion.text for r in rollouts] == [r.execution.answer for r in rollouts]
    assert [r.reward.total for r in rollouts] == [-5.0, *[10.0] * 12, -5.0]
    assert runner.most == 4

    async def seeds(seed: int, order: list[int]) -> set[tuple[str, int | None]]:
        runner = Noting(0, 0.0)
        parts = RolloutParts(runner, LuckyJudge(), ten_or_minus_five)
        await collect([problem(i) for i in order], [[completion("7")] * 3] * 2, parts, seed=seed)
        return {(problem_id, seed) for problem_id, _, seed in runner.runs}

    first = await seeds(1, [0, 1])
    assert len({seed for _, seed in first}) == 6
    assert first == await seeds(1, [1, 0])
    assert not first & await seeds(2, [0, 1])


async def test_our_failures_leave_a_rollout_unscored_and_the_policys_are_wrong() -> None:
    class Failing(EchoRunner):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if source == "down":
                raise ProviderError("HTTP 503")
            return (
                Execution(source, "7", error=source) if source in get_args(Outcome) else Execution("finished", source)
            )  # type: ignore[arg-type]

    class DownJudge(LuckyJudge):
        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            if answer == "judge":
                raise ProviderError("HTTP 503")
            return await super().verdict(problem, answer)

    wrong = ["invalid", "raised", "timeout", "memory", "output_limit", "budget"]
    found = await collected(["down", "fault", "judge", "7", *wrong], runner=Failing(), judge=DownJudge())
    assert [r.verdict.correct for r in found] == [None, None, None, True, *[False] * 6]
    assert [r.reward.total for r in found] == [None, None, None, 10.0, *[-5.0] * 6]
    assert "503" in found[0].execution.error and "503" in found[2].verdict.reason
    assert [r.verdict.reason for r in found[4:]] == wrong and not any(r.valid for r in found[4:])


async def test_a_bug_travels_and_stops_the_others() -> None:
    cancelled = []

    class Buggy(EchoRunner):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if source == "bug":
                raise KeyError("bug")
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                cancelled.append(source)
                raise
            return Execution("finished", source)

    with pytest.raises(KeyError):
        await collected(["a", "bug", "b"], runner=Buggy())
    assert sorted(cancelled) == ["a", "b"]


async def test_a_workflow_cut_off_is_floored_or_masked_and_a_steps_rewards_come_last() -> None:
    cut = Completion("7", (1,), (2,), (0.0,), "length")
    for truncated, total in (("run", 10.0), ("floor", -5.0), ("mask", None)):
        parts = RolloutParts(EchoRunner(), LuckyJudge(), ten_or_minus_five, truncated=truncated)  # type: ignore[arg-type]
        (group,) = await collect([problem(0)], [[cut]], parts)
        assert group.rollouts[0].reward.total == total, truncated
        assert (group.rollouts[0].execution.outcome == "finished") is (truncated == "run")

    class Doubled:
        async def add(self, rollouts: list[Rollout]) -> list[Rollout]:
            return [replace(r, reward=Reward(2 * (r.reward.total or 0.0))) for r in rollouts]

    assert [r.reward.total for r in await collected(["7", "8"], extra=Doubled())] == [20.0, -10.0]
