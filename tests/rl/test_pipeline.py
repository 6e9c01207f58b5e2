"""Lookahead: results depend on the order of the work only, not on how long anything takes."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny
from helpers.tiny import EchoRunner, ListBuffer, LuckyJudge, alike, bandit_trainer, equal, problem, tiny_policy, weights

from llm_as_judge.policy.device import on_device
from llm_as_judge.rl.report import StepReport
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.runlog import EventLog, FinishedStep, LogReader
from llm_as_judge.types import Execution, Group, Problem, Question, Verdict
from llm_as_judge.workflow.shapes import Example


class Slow(EchoRunner):
    """Takes a random time for each workflow; ``runs`` are those that have started."""

    def __init__(self, seed: int, seconds: float = 0.02) -> None:
        self.draw, self.seconds = random.Random(seed), seconds
        self.runs: list[tuple[str, str, int | None]] = []

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        self.runs.append((question.id, source, seed))
        await asyncio.sleep(self.draw.expovariate(1 / self.seconds) if self.seconds else 0)
        return await super().run(source, question)


class Recalling(ListBuffer):
    """Puts its last text into every prompt, as an example."""

    def examples(self, question: Question) -> list[Example]:
        return [Example("", text) for text in self.texts[-1:]]


def trainer(directory: Path, runner: Any = None, lookahead: int = 2, **settings: Any) -> Trainer:
    defaults = {"learning_rate": 3e-3, "max_steps": 6, "save_every": 1, "lookahead": lookahead}
    policy = tiny_policy(rank=8, lora_dropout=0.1)  # dropout uses torch's generator
    return bandit_trainer(directory, runner=runner, policy=policy, buffer=Recalling(), **{**defaults, **settings})


async def trained(made: Trainer, *steps: int | None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    for count in steps or (None,):
        await made.train(count)
    return weights(made)


class Watched(LuckyJudge):
    """``order``: problems in the order of their verdicts."""

    def __init__(self) -> None:
        self.order: list[str] = []

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        self.order.append(problem.question.id)
        return await super().verdict(problem, answer)


async def test_a_group_shares_the_executors_seeds_and_its_speed_changes_nothing(tmp_path: Path) -> None:
    runner = Slow(0, 0.0)
    await trained(trainer(tmp_path, runner, lookahead=0), 1)
    seeds = {(problem, seed) for problem, _, seed in runner.runs}
    problems = {problem for problem, _ in seeds}
    assert len(seeds) == len(problems) == len({seed for _, seed in seeds}) < len(runner.runs)
    judges = [Watched(), Watched(), Watched()]
    made = [
        trainer(tmp_path / str(i), Slow(i, seconds), judge=judges[i], refill_rounds=1)
        for i, seconds in enumerate((0.0, 0.01, 0.03))
    ]
    start = weights(made[0])
    first, second, parts = [await trained(m, *steps) for m, steps in zip(made, ((), (), (1, 2, 3)), strict=True)]
    assert judges[0].order != judges[1].order
    assert equal(first, second) and equal(first, parts) and not equal(first, start)


async def test_batches_are_sampled_by_the_weights_of_that_many_steps_before(tmp_path: Path) -> None:
    for lookahead in (0, 2):
        seen, reports = list[list[int]](), list[StepReport]()

        class Buffer(ListBuffer):
            def update(self, groups: Sequence[Group], step: int, seen: list[list[int]] = seen) -> None:
                seen.append([r.completion.policy_version for g in groups for r in g.rollouts])

        settings: dict[str, Any] = {"lookahead": lookahead, "max_steps": 5, "reports": reports}
        made = bandit_trainer(tmp_path, buffer=Buffer(), runner=Slow(0), **settings)
        await made.train()
        assert seen == [[max(0, step - lookahead)] * 24 for step in range(5)]
        stale = [(step, min(step, lookahead), min(step, lookahead)) for step in range(5)]
        assert [(r.version, r.staleness, r.staleness_max) for r in reports] == stale
        assert made.parts.sampler.state_dict()["position"] == 5 * 4  # nothing is drawn beyond the last step
        assert all(0 < r.device_busy <= 1.05 for r in reports)


async def test_the_log_shows_every_rollout_with_the_prompt_it_answered(tmp_path: Path) -> None:
    """Every batch has the same problems, and their prompts change with the buffer."""
    answered, log = dict[tuple[int, str], str](), EventLog(tmp_path / "log.jsonl")

    class Buffer(Recalling):
        def update(self, groups: Sequence[Group], step: int) -> None:
            for rollout in (r for g in groups for r in g.rollouts):
                ids = rollout.completion.prompt_ids
                answered[step, rollout.problem.question.id] = made.parts.policy.tokenizer.decode(ids)
            self.texts.append(f"{9 + step} {9 + step}")

    made = bandit_trainer(tmp_path, buffer=Buffer(), lookahead=1, max_steps=4)
    made.parts.sampler.sample = lambda n: [problem(i) for i in range(n)]  # type: ignore[method-assign]
    await Trainer(replace(made.parts, log=log.log), made.config).train()
    shown = {
        (event.step, event.rollout.problem.question.id): prompt.user
        for step in LogReader(log.path).finished()
        if isinstance(step, FinishedStep)
        for event, _, prompt in step.members()
    }
    assert len(set(shown.values())) > 4 and shown.keys() == answered.keys()
    assert {key: text for key, text in shown.items() if text not in answered[key]} == {}


async def test_examples_are_dropped_until_the_prompt_fits_and_each_prompt_is_tokenised_once(tmp_path: Path) -> None:
    class Buffer(ListBuffer):
        def examples(self, question: Question) -> list[Example]:
            return [Example("", text) for text in texts]

    texts, bare = ["11 12", "13", "14 15 16"], 10  # tokens of system, problem and template
    for room, shown in ((6, 3), (5, 2), (2, 1), (1, 0), (0, 0)):
        events, encoded, policy = tiny.Events(), list[str](), tiny_policy()
        encode = policy.encode
        policy.encode = lambda p, do=encode, into=encoded: into.append(p.user) or do(p)  # type: ignore[method-assign]
        given: dict[str, Any] = {"events": events, "policy": policy, "buffer": Buffer()}
        await bandit_trainer(tmp_path, **given, prompt_max_length=bare + room).train(1)
        tried = [[" ".join([problem(i).question.text, *texts[:n]]) for n in range(3, shown - 1, -1)] for i in range(4)]
        assert encoded == [user for prompts in tried for user in prompts], room
        logged = [(event["user"], event["examples"]) for event in events.of("prompt")]
        assert logged == [(prompts[-1], shown) for prompts in tried], room


async def test_killed_with_pending_batches_it_resumes_bit_for_bit_and_samples_nothing_twice(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "straight", Slow(1))
    await trained(straight)

    class Stuck(Slow):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if len(self.runs) >= 3 * 24 + 10:  # in the fourth of six batches
                self.runs.append((question.id, source, seed))
                await asyncio.sleep(60)
            return await super().run(source, question, seed)

    stuck = Stuck(2)
    task = asyncio.create_task(trained(trainer(tmp_path / "killed", stuck)))
    while len(stuck.runs) < 4 * 24 + 5:
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    newest = max(int(p.name[5:]) for p in (tmp_path / "killed").glob("step_*"))
    pending = torch.load(tmp_path / f"killed/step_{newest}/state.pt", weights_only=True)["pending"]
    assert newest in (2, 3) and len(pending) == 2
    runner, drawn = Slow(3), list[int]()
    resumed = trainer(tmp_path / "killed", runner)
    resumed.resume(tmp_path / f"killed/step_{newest}")
    sample = resumed.parts.sampler.sample

    def counted(n: int) -> list[Problem]:
        drawn.append(n)
        return sample(n)

    resumed.parts.sampler.sample = counted  # type: ignore[method-assign]
    await resumed.train()
    assert alike(straight, resumed)
    assert sum(drawn) == (6 - newest - 2) * 4
    first = [
        (p["question"]["id"], c["text"])
        for b in pending
        for p, g in zip(b["problems"], b["completions"], strict=True)
        for c in g
    ]
    assert [run[:2] for run in runner.runs[:48]] == first


async def test_an_error_in_a_later_batch_is_raised_and_leaves_nothing_running(tmp_path: Path) -> None:
    class Broken(Slow):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if question.id == "p5":
                raise ZeroDivisionError("a bug")
            return await super().run(source, question, seed)

    made = trainer(tmp_path, Broken(0))
    with pytest.raises(ZeroDivisionError):
        await made.train()
    assert made.step == 1  # the batch before it was trained on
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_work_that_has_begun_is_finished_before_a_cancellation() -> None:
    begun, done = threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        time.sleep(0.1)
        done.append(1)

    task = asyncio.create_task(on_device(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]
    with pytest.raises(ZeroDivisionError):
        await on_device(lambda: 1 // 0)
