"""The training loop: it learns, its control does not, it resumes bit for bit, and it stops when it should."""

import asyncio
import math
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from helpers import tiny
from helpers.tiny import EOS, LUCKY, Events, Judges, ListBuffer, LuckyJudge, Runs, alike, bandit_trainer, equal, weights

from llm_as_judge.errors import DataError, InfrastructureError, ProviderError
from llm_as_judge.events import StepReport
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.rl.update import TrainingStopped
from llm_as_judge.types import Execution, Group, Prompt, Rollout, Verdict


async def accuracies(tmp_path: Path, steps: int = 12, **settings: Any) -> list[float]:
    reports: list[StepReport] = []
    await bandit_trainer(tmp_path, reports=reports, rollout_batch_size=6, **settings).train(steps)
    return [r.accuracy for r in reports]


async def test_it_learns_a_bandit_and_with_shuffled_rewards_it_does_not(tmp_path: Path) -> None:
    found = await accuracies(tmp_path)
    assert sum(found[:2]) / 2 < 0.5
    assert sum(found[-3:]) / 3 > 0.85
    control = await accuracies(tmp_path, shuffle_rewards=True)
    assert sum(control[-3:]) / 3 < 0.6


@pytest.mark.gpu
async def test_resuming_is_bit_exact(tmp_path: Path, device: str) -> None:
    reports: dict[str, list[StepReport]] = {"straight": [], "parts": []}

    def trainer(name: str) -> Trainer:
        torch.manual_seed(0)
        policy = tiny.tiny_policy(rank=8, lora_dropout=0.1, device=device)  # dropout uses torch's generator
        settings = {"buffer": ListBuffer(), "save_every": 1, "ppo_epochs": 2, "beta": 0.05, "warmup_steps": 3}
        return bandit_trainer(tmp_path / name, policy=policy, reports=reports[name], **settings)

    straight = trainer("straight")
    await straight.train(4)
    await trainer("parts").train(2)
    resumed = trainer("parts")
    torch.manual_seed(98)
    resumed.resume(tmp_path / "parts/step_2")
    await resumed.train(2)
    if device != "cpu":  # kernels of a GPU may add in another order
        gaps = [(a - b).abs().flatten() for a, b in zip(weights(straight), weights(resumed), strict=True)]
        assert float(torch.cat(gaps).mean()) < 1e-4 and [r.step for r in reports["parts"]] == [1, 2, 3, 4]
        return
    assert alike(straight, resumed)
    untimed = dict.fromkeys(("time", "device_busy", "executor_slots", "slot_wait_s"), 0.0)
    strip = [[msgspec.structs.replace(r, **untimed, seconds={}) for r in rs] for rs in reports.values()]
    assert repr(strip[0]) == repr(strip[1])  # as text, because NaN is not equal to NaN
    saved = torch.load(tmp_path / "straight/step_4/state.pt")["random_states"]
    assert torch.equal(torch.get_rng_state(), saved["torch"])
    moments = [t.learner.optimizer.state_dict()["state"] for t in (straight, resumed)]
    assert all(torch.equal(moments[0][i]["exp_avg_sq"], moments[1][i]["exp_avg_sq"]) for i in moments[0])


async def test_a_prefilled_reply_is_trained_on_its_own_tokens_and_run_as_a_whole(tmp_path: Path) -> None:
    class Buffer(ListBuffer):
        def update(self, groups: Sequence[Group], step: int) -> None:
            rollouts.extend(r for group in groups for r in group.rollouts)

    rollouts: list[Rollout] = []
    trainer = bandit_trainer(tmp_path, buffer=Buffer())
    parts = replace(trainer.parts, prompt=lambda q, examples: Prompt("4 5", q.text, prefill="21 22 "))
    await Trainer(parts, trainer.config).train(1)
    assert rollouts
    for rollout in rollouts:
        completion = rollout.completion
        assert rollout.workflow == rollout.execution.answer == f"21 22 {completion.text}"
        assert completion.prompt_ids[-2:] == (21, 22) and len(completion.token_ids) == len(completion.logprobs)
        assert completion.text == " ".join(str(i) for i in completion.token_ids if i != EOS)


def test_a_second_ctrl_c_while_saving_loses_nothing(tmp_path: Path) -> None:
    """Launchers and schedulers send a signal to each process again."""
    policy = tiny.tiny_policy(rank=8)
    save = policy.save_adapter

    def slowly(directory: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        save(directory)

    class Interrupt(list[StepReport]):
        def append(self, report: StepReport) -> None:
            if report.step == 2:
                policy.save_adapter = slowly  # type: ignore[method-assign]
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(bandit_trainer(tmp_path, policy=policy, reports=Interrupt()).train(5))
    assert checkpoint.latest(tmp_path) == tmp_path / "step_2", "whole, or an earlier one would be taken"


async def test_no_valid_workflow_or_a_collapse_stops_the_run(tmp_path: Path) -> None:
    breaking = Runs(lambda run: Execution("invalid", None) if run >= 6 * 24 else None)
    with pytest.raises(TrainingStopped, match=r"valid workflows fell to .*learning_rate"):
        await bandit_trainer(tmp_path, runner=breaking, save_every=2).train(30)
    last = checkpoint.latest(tmp_path)
    assert last is not None and last.name in ("step_6", "step_8")

    async def steps(accepted: int | None = None) -> int:
        """How many are made if lint accepts one workflow, of step ``accepted``."""

        def lint(run: int) -> Execution:
            valid = divmod(run, 24) == (accepted, 0)
            return Execution("finished", LUCKY) if valid else Execution("invalid", None, error="E1")

        trainer = bandit_trainer(tmp_path, runner=Runs(lint))
        try:
            await trainer.train(8)
        except TrainingStopped as error:
            noted = r"for 5 steps.*\(24 of 24\): 'E1'.*analyze.*warmup.*temperature \(now 1\).*prompt"
            assert re.search(noted, str(error)), error
        return trainer.step

    assert await steps() == 5
    assert await steps(3) == 8, "counted in a row"


async def test_updates_without_a_finite_gradient_are_left_out_and_several_in_a_row_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(directory: Path, at: Collection[int]) -> tuple[Trainer, list[Any]]:
        made, seen = bandit_trainer(directory, save_every=9), list[Any]()
        backward = made.learner._backward

        def poisoned(*work: Any) -> Iterator[Any]:
            yield from backward(*work)
            if made.step + 1 in at:
                next(p for p in made.learner.optimizer.weights if p.grad is not None).grad.fill_(math.nan)

        made.learner._backward = poisoned
        made.parts = replace(made.parts, on_step=lambda report: seen.append((report.grad_norm, weights(made))))
        return made, seen

    made, seen = broken(tmp_path / "twice", (2, 3))
    report = await made.train(4)
    assert report is not None and report.step == 4 and caplog.text.count("no step is taken") == 2
    norms, adapters = zip(*seen, strict=True)
    assert [math.isfinite(norm) for norm in norms] == [True, False, False, True]
    assert equal(adapters[0], adapters[2]) and not equal(adapters[2], adapters[3])
    made, seen = broken(tmp_path / "on", range(2, 9))
    with pytest.raises(TrainingStopped, match=r"step 4: .* 3 times in a row; lower the learning rate"):
        await made.train(8)
    assert checkpoint.latest(tmp_path / "on") == tmp_path / "on/step_3", "what was paid for is kept"


def down(fails: float = math.inf) -> Judges:
    """Fails from the third step on, for ``fails`` questions."""

    def fail(verdict: int, number: int) -> None:
        if 2 * 24 <= verdict < 2 * 24 + fails:
            raise ProviderError("connection refused")

    return Judges(fail)


def patient(trainer: Trainer, **patience: Any) -> Trainer:
    rollout = replace(trainer.parts.rollout, max_unscored=0.5, **patience)
    return Trainer(replace(trainer.parts, rollout=rollout), trainer.config)


async def test_an_endpoint_that_is_down_stops_or_delays_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_as_judge.rl.rollout._FIRST_WAIT_S", 0.01)
    messages: list[str] = []
    stays = patient(bandit_trainer(tmp_path, judge=down()), patience_s=0.01, on_pause=messages.append)
    with pytest.raises(InfrastructureError, match=r"100% of the rollouts .* connection refused.*--resume"):
        await stays.train(30)
    assert checkpoint.latest(tmp_path) == tmp_path / "step_2", "the unscored step teaches nothing"
    assert len(messages) == 1 and "paused" in messages[0] and "connection refused" in messages[0]
    judges = {"back": down(48), "up": LuckyJudge()}
    back, up = (patient(bandit_trainer(tmp_path / k, judge=j), patience_s=5.0) for k, j in judges.items())
    for trainer in (back, up):
        report = await trainer.train(4)
        assert report is not None and report.unscored == 0
    assert equal(weights(back), weights(up))


async def test_unscored_rollouts_are_counted_and_teach_nothing(tmp_path: Path) -> None:
    trainer = bandit_trainer(tmp_path, judge=Judges(lambda *_: Verdict(None, "llm", "judge unparsable")))
    before = weights(trainer)
    report = await trainer.train(1)
    assert report is not None
    assert (report.unscored, report.skipped_groups, report.groups) == (24, 4, 4)
    assert math.isnan(report.accuracy) and report.valid_rate == 1.0
    assert (report.abstained, report.between, report.left_out_groups) == (1.0, (0.0, 1.0), 4)
    assert equal(before, weights(trainer))


async def test_step_and_rollouts_are_logged(tmp_path: Path) -> None:
    events = Events()
    report = await bandit_trainer(tmp_path, events=events, buffer=ListBuffer()).train(1)
    assert report is not None
    rollouts = [event["rollout"] for event in events.of("rollout")]
    assert len(rollouts) == 24 and len(events.of("step")) == 1 and len(events.of("checkpoint")) == 1
    right = [rollout["verdict"]["correct"] for rollout in rollouts]
    for rollout, correct in zip(rollouts, right, strict=True):
        assert correct == (LUCKY in rollout["completion"]["text"].split())
        assert [*rollout["reward"]["terms"].values(), rollout["reward"]["total"]] == [10.0 if correct else -5.0] * 2
    assert len({rollout["problem"]["question"]["id"] for rollout in rollouts}) == 4
    step = events.of("step")[0]
    assert step["accuracy"] == sum(right) / 24 == report.accuracy
    assert step["truncated"] == sum(r["completion"]["finish_reason"] == "length" for r in rollouts) / 24 > 0
    assert step["kl"] is None and step["temperature"] == 1.0  # not measured is null, not NaN
    assert set(step["seconds"]) == {"prompt", "sync", "generate", "execute", "update"}
    assert step["domain_accuracy"].keys() == {"math", "qa"}
    by_group = [sum(e["advantage"] for e in events.of("rollout")[i : i + 6]) for i in range(0, 24, 6)]
    assert by_group == pytest.approx([0.0] * 4, abs=1e-6)


def fickle(boring: int) -> Judges:
    """Judges everything wrong for the first ``boring`` problems, whose groups have no contrast."""
    return Judges(lambda verdict, number: Verdict(False, "rules") if number < boring else None)


async def test_groups_without_contrast_are_replaced_and_counted(tmp_path: Path) -> None:
    trained: list[int] = []
    trainer = bandit_trainer(tmp_path, judge=fickle(3), refill_rounds=3)
    update = trainer.learner.update

    def watch(batch: Any, sampling: Any, version: int) -> Any:
        trained.append(batch.normaliser.sequences)
        assert len(batch.rows) == trained[-1], "each has an advantage"
        return update(batch, sampling, version)

    trainer.learner.update = watch  # type: ignore[method-assign]
    report = await trainer.train(1)
    assert report is not None and trained == [4 * 6]
    assert report.refilled_groups >= 3 and report.skipped_groups >= 3
    assert report.groups == 4 + report.refilled_groups == trainer.parts.sampler.state_dict()["position"]
    hopeless = await bandit_trainer(tmp_path, judge=fickle(10**6), refill_rounds=2).train(1)
    assert hopeless is not None and hopeless.grad_norm == 0.0
    assert (hopeless.groups, hopeless.refilled_groups, hopeless.skipped_groups) == (12, 8, 12)


async def test_learning_rate_and_validation_follow_their_schedules(tmp_path: Path) -> None:
    async def evaluate(step: int) -> dict[str, float]:
        return {"overall": 1 / step}

    reports, events = list[StepReport](), Events()
    schedule = {"warmup_steps": 4, "learning_rate": 1e-3, "max_steps": 3, "save_every": 1, "keep_checkpoints": 1}
    trainer = bandit_trainer(tmp_path, reports=reports, events=events, evaluate=evaluate, eval_every=2, **schedule)
    await trainer.train(2)
    await trainer.train()  # up to max_steps
    assert trainer.step == 3 and checkpoint.latest(tmp_path) == tmp_path / "step_3"
    await trainer.train(2)
    assert [r.learning_rate for r in reports] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert [(e["step"], e["scores"]["overall"]) for e in events.of("eval")] == [(2, 0.5), (4, 0.25)]
    assert {path.name for path in tmp_path.glob("step_*")} == {"step_2", "step_5"}


async def test_prompts_that_do_not_fit_are_redrawn_and_reported(tmp_path: Path) -> None:
    events = Events()
    trainer = bandit_trainer(tmp_path, events=events, prompt_max_length=9)
    with pytest.raises(DataError, match=r"prompt_max_length=9 .*10 tokens"):
        await trainer.train(1)
    assert events.of("prompt_too_long")[0]["tokens"] == 10
