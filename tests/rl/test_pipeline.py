"""Claims about looking ahead: the result hangs on the order of the work alone, not on how long anything takes."""

from __future__ import annotations

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
from helpers.tiny import EchoRunner, Events, ListBuffer, LuckyJudge, bandit_trainer, tiny_policy

from llm_as_judge.errors import ProviderError
from llm_as_judge.events import StepReport
from llm_as_judge.policy.device import Device
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.types import Execution, Group, Problem, Prompt, Question, Verdict


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.parts.policy.trainable_parameters()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Slow(EchoRunner):
    """Takes a random time for each workflow; ``runs`` are those that were begun."""

    def __init__(self, seed: int, seconds: float = 0.02) -> None:
        self.draw, self.seconds = random.Random(seed), seconds
        self.runs: list[tuple[str, str, int | None]] = []

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        self.runs.append((question.id, source, seed))
        await asyncio.sleep(self.draw.expovariate(1 / self.seconds) if self.seconds else 0)
        return await super().run(source, question)


class Recalling(ListBuffer):
    """Its content is shown in every prompt, as examples are."""

    def prompt(self, question: Question) -> Prompt:
        return Prompt("4 5 6 7 8", f"{question.text} {' '.join(self.texts[-1:])}")


def trainer(directory: Path, runner: Any = None, lookahead: int = 2, **settings: Any) -> Trainer:
    buffer = Recalling()
    defaults = {"learning_rate": 3e-3, "max_steps": 6, "save_every": 1, "lookahead": lookahead}
    policy = tiny_policy(rank=8, lora_dropout=0.1)  # dropout draws from torch's generator
    made = bandit_trainer(directory, runner=runner, policy=policy, buffer=buffer, **{**defaults, **settings})
    return Trainer(replace(made.parts, build_prompt=buffer.prompt), made.config)


class Watched(LuckyJudge):
    """``order`` is when which problem was judged."""

    def __init__(self) -> None:
        self.order: list[str] = []

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        self.order.append(problem.question.id)
        return await super().verdict(problem, answer)


async def test_the_executor_s_speed_changes_nothing(tmp_path: Path) -> None:
    judges = [Watched(), Watched(), Watched()]
    trainers = [
        trainer(tmp_path / str(i), Slow(i, seconds), judge=judges[i], refill_rounds=1)
        for i, seconds in enumerate((0.0, 0.01, 0.03))
    ]
    for each in trainers:
        torch.manual_seed(0)
        await each.train()
    assert judges[0].order != judges[1].order  # it was another order of events
    for other in trainers[1:]:
        assert equal(weights(trainers[0]), weights(other))
    assert not equal(weights(trainers[0]), [torch.zeros_like(w) for w in weights(trainers[0])])


@pytest.mark.parametrize("lookahead", [0, 1, 2])
async def test_batches_are_sampled_by_the_weights_of_as_many_steps_before(tmp_path: Path, lookahead: int) -> None:
    seen: list[list[int]] = []

    class Buffer(ListBuffer):
        def update(self, groups: Sequence[Group], step: int) -> None:
            seen.append([r.completion.policy_version for g in groups for r in g.rollouts])

    events, reports = Events(), list[StepReport]()
    made = bandit_trainer(
        tmp_path, lookahead=lookahead, max_steps=5, events=events, reports=reports, buffer=Buffer(), runner=Slow(0)
    )
    await made.train()
    assert seen == [[max(0, step - lookahead)] * 24 for step in range(5)]
    assert [r.staleness for r in reports] == [min(step, lookahead) for step in range(5)]
    assert [(e["version"], e["staleness_max"]) for e in events.of("step")] == [
        (step, min(step, lookahead)) for step in range(5)
    ]
    assert made.parts.sampler.state_dict()["position"] == 5 * 4  # nothing was drawn that no step was to have


async def test_killed_amid_pending_batches_it_goes_on_bit_for_bit_and_samples_nothing_twice(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "straight", Slow(1))
    torch.manual_seed(0)
    await straight.train()

    class Stuck(Slow):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if len(self.runs) >= 3 * 24 + 10:  # in the fourth batch, which two more follow
                self.runs.append((question.id, source, seed))
                await asyncio.sleep(60)
            return await super().run(source, question, seed)

    stuck = Stuck(2)
    killed = trainer(tmp_path / "killed", stuck)
    torch.manual_seed(0)
    task = asyncio.create_task(killed.train())
    while len(stuck.runs) < 4 * 24 + 5:
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    newest = max(int(p.name[5:]) for p in (tmp_path / "killed").glob("step_*"))
    pending = torch.load(tmp_path / f"killed/step_{newest}/state.pt", weights_only=True)["pending"]
    assert newest in (2, 3) and len(pending) == 2
    runner, asked = Slow(3), list[int]()
    resumed = trainer(tmp_path / "killed", runner)
    resumed.resume(tmp_path / f"killed/step_{newest}")
    sample = resumed.parts.sampler.sample

    def counted(n: int) -> Sequence[Problem]:
        asked.append(n)
        return sample(n)

    resumed.parts.sampler.sample = counted  # type: ignore[method-assign]
    await resumed.train()
    assert equal(weights(straight), weights(resumed))
    assert sum(asked) == (6 - newest - 2) * 4
    first = [
        (p["question"]["id"], c["text"])
        for b in pending
        for p, g in zip(b["problems"], b["completions"], strict=True)
        for c in g
    ]
    assert [run[:2] for run in runner.runs[:48]] == first
    assert straight.parts.buffer is not None and resumed.parts.buffer is not None
    assert straight.parts.buffer.state_dict() == resumed.parts.buffer.state_dict()


async def test_training_in_parts_is_training_at_once(tmp_path: Path) -> None:
    whole, parts = trainer(tmp_path / "a", Slow(1)), trainer(tmp_path / "b", Slow(2))
    torch.manual_seed(0)
    await whole.train()
    torch.manual_seed(0)
    for steps in (1, 2, 3):
        await parts.train(steps)
    assert equal(weights(whole), weights(parts))


async def test_another_lookahead_goes_on_with_what_is_pending(tmp_path: Path) -> None:
    await trainer(tmp_path, lookahead=2).train(2)
    resumed = trainer(tmp_path, lookahead=0)
    resumed.resume(tmp_path / "step_2")
    report = await resumed.train()
    assert resumed.step == 6 and report is not None and report.staleness == 0
    assert resumed.parts.sampler.state_dict()["position"] == 6 * 4


@pytest.mark.parametrize("lookahead", [1, 2, 4])
@pytest.mark.parametrize("policy", ["behaviour", "truncate"])
async def test_it_learns_a_bandit_from_old_samples(tmp_path: Path, lookahead: int, policy: str) -> None:
    found = await accuracies(tmp_path, 24, lookahead=lookahead, stale_policy=policy)
    assert sum(found[:2]) / 2 < 0.5
    assert sum(found[-3:]) / 3 > 0.85


@pytest.mark.parametrize("lookahead", [1, 4])
async def test_with_shuffled_rewards_it_does_not(tmp_path: Path, lookahead: int) -> None:
    found = await accuracies(tmp_path, lookahead=lookahead, shuffle_rewards=True)
    assert sum(found[-3:]) / 3 < 0.6


async def accuracies(tmp_path: Path, steps: int = 20, **settings: Any) -> list[float]:
    reports: list[StepReport] = []
    await bandit_trainer(tmp_path, reports=reports, rollout_batch_size=6, **settings).train(steps)
    return [r.accuracy for r in reports]


async def test_the_executor_works_while_the_policy_does(tmp_path: Path) -> None:
    """The same steps with an executor that takes as long as the policy, one after the other and side by side."""
    seconds = {}
    for lookahead in (0, 2):
        reports: list[StepReport] = []
        made = bandit_trainer(
            tmp_path / str(lookahead), lookahead=lookahead, max_steps=8, runner=Fixed(0.4), reports=reports
        )
        made = Trainer(replace(made.parts, rollout=replace(made.parts.rollout, concurrency=100)), made.config)
        begun = time.perf_counter()
        await made.train()
        seconds[lookahead] = time.perf_counter() - begun
        assert all(0 < r.device_busy <= 1.05 for r in reports)
    assert seconds[0] > 8 * 0.4
    assert seconds[2] < seconds[0] - 3 * 0.4


class Fixed(EchoRunner):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        await asyncio.sleep(self.seconds)
        return await super().run(source, question)


async def test_a_workflow_starts_when_its_own_sequence_ends(tmp_path: Path) -> None:
    """Of a batch whose sequences end at different times, some run before the last one is written."""
    runner = Slow(0, 0.0)
    made = bandit_trainer(tmp_path, runner=runner, response_max_length=60)
    engine, begun_before_the_end = made.parts.engine, list[int]()

    class Pausing:
        sync = engine.sync

        def generate(self, *args: Any, on_completion: Any, **kwargs: Any) -> Any:
            def slowly(*told: Any) -> None:
                on_completion(*told)
                time.sleep(0.01)  # the loop has its turn

            found = engine.generate(*args, on_completion=slowly, **kwargs)
            begun_before_the_end.append(len(runner.runs))
            return found

    await Trainer(replace(made.parts, engine=Pausing()), made.config).train(1)
    assert 12 <= begun_before_the_end[0] < 24 + 1 and len(runner.runs) == 24


async def test_an_engine_that_tells_of_nothing_before_the_end_will_do(tmp_path: Path) -> None:
    made, plain = bandit_trainer(tmp_path / "a"), bandit_trainer(tmp_path / "b")
    engine = made.parts.engine

    class Silent:
        sync = engine.sync

        def generate(self, *args: Any, on_completion: Any, **kwargs: Any) -> Any:
            return engine.generate(*args, **kwargs)

    silent = Trainer(replace(made.parts, engine=Silent()), made.config)
    await silent.train(2)
    await plain.train(2)
    assert equal(weights(silent), weights(plain))


async def test_the_event_loop_is_never_held_up(tmp_path: Path) -> None:
    """All that computes is done in one other thread."""
    threads: set[str] = set()
    made = bandit_trainer(tmp_path, lookahead=1, save_every=1)
    engine, update, save = made.parts.engine, made.updater.update, made.parts.policy.save_adapter

    def noting(work: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.current_thread().name)
            return work(*args, **kwargs)

        return noted

    engine.generate = noting(engine.generate)  # type: ignore[method-assign]
    made.updater.update = noting(update)  # type: ignore[method-assign]
    made.parts.policy.save_adapter = noting(save)  # type: ignore[method-assign]
    await made.train(2)
    assert len(threads) == 1 and threads != {threading.main_thread().name}


async def test_an_error_in_a_batch_ahead_travels_and_leaves_nothing_running(tmp_path: Path) -> None:
    class Broken(Slow):
        async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
            if question.id == "p5":
                raise ZeroDivisionError("a bug")
            return await super().run(source, question, seed)

    made = trainer(tmp_path, Broken(0))
    with pytest.raises(ZeroDivisionError):
        await made.train()
    assert made.step == 1  # the batch before it was trained on
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others


async def test_an_endpoint_that_fails_for_a_batch_ahead_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_as_judge.rl.rollout._FIRST_WAIT_S", 0.01)

    class Down(LuckyJudge):
        calls = 0

        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            self.calls += 1
            if 24 < self.calls <= 72:
                raise ProviderError("nobody listens")
            return await super().verdict(problem, answer)

    found = []
    for judge in (Down(), LuckyJudge()):
        made = trainer(tmp_path / type(judge).__name__, judge=judge)
        rollout = replace(made.parts.rollout, max_unscored=0.2, patience_s=5.0)
        made = Trainer(replace(made.parts, rollout=rollout), made.config)
        torch.manual_seed(0)
        await made.train()
        found.append(weights(made))
    assert equal(*found)


async def test_work_that_has_begun_is_finished_before_a_cancellation() -> None:
    device, begun, done = Device(), threading.Event(), list[int]()

    def work() -> None:
        begun.set()
        time.sleep(0.1)
        done.append(1)

    task = asyncio.create_task(device.run(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1] and device.busy_s >= 0.1
    with pytest.raises(ZeroDivisionError):
        await device.run(lambda: 1 // 0)
