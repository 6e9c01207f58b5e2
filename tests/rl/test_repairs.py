"""Repair turns: one sequence per episode, the weights of its first turn, the same results whatever the timing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from helpers import tiny
from test_pipeline import Slow, trained

from llm_as_judge.config.loading import load_config
from llm_as_judge.evaluation.evaluate import PolicyAuthor, evaluate
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.events import RolloutEvent, StepReport
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.rollout import RolloutParts, conclude, run_attempt
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.runlog import encoded
from llm_as_judge.types import Completion, Execution, Group, Prompt, Question, Rollout, Verdict


class Picky(Slow):
    """Refuses a third of all workflows and raises in another third; says so by numbers."""

    def _kind(self, source: str) -> int:
        return sum(map(int, source.split())) % 3

    def refuse(self, source: str, question: Question) -> Execution | None:
        return Execution("invalid", None, error="4") if self._kind(source) == 0 else None

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        if refused := self.refuse(source, question):
            return refused
        done = await super().run(source, question, seed)
        return done if self._kind(source) == 1 else Execution("raised", None, error="5")

    async def feedback(self, execution: Execution, question: Question) -> str:
        return f"9 9 {execution.error}" if execution.outcome != "finished" else ""


class Kept(tiny.ListBuffer):
    """Every rollout by step, and the adapter that had been trained when it was."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[list[Rollout]] = []

    def update(self, groups: Sequence[Group], step: int) -> None:
        super().update(groups, step)
        self.rollouts.append([r for g in groups for r in g.rollouts])


def trainer(directory: Path, seconds: float = 0.0, repairs: int = 2, **settings: Any) -> Trainer:
    defaults = {"learning_rate": 3e-3, "max_steps": 5, "save_every": 1, "lookahead": 1}
    policy = tiny.tiny_policy(rank=8, lora_dropout=0.1)
    made = tiny.bandit_trainer(
        directory, runner=Picky(1, seconds), policy=policy, buffer=Kept(), **{**defaults, **settings}
    )
    return Trainer(replace(made.parts, rollout=replace(made.parts.rollout, repairs=repairs)), made.config)


def rollouts(made: Trainer) -> list[list[Rollout]]:
    assert isinstance(made.parts.buffer, Kept)
    return made.parts.buffer.rollouts


@pytest.mark.parametrize("lookahead", [0, 1, 2])
async def test_an_episode_is_one_sequence_of_turns_by_the_weights_of_its_first(tmp_path: Path, lookahead: int) -> None:
    reports: list[StepReport] = []
    torch.manual_seed(0)  # of the dropout
    made = trainer(tmp_path, lookahead=lookahead)
    versions = [tiny.weights(made)]

    def on_step(report: StepReport) -> None:
        reports.append(report)
        versions.append(tiny.weights(made))

    made.parts = replace(made.parts, on_step=on_step)
    await made.train()
    policy, turns = made.parts.policy, set[int]()
    policy.model.eval()
    for step, batch in enumerate(rollouts(made)):
        ran = [[a.execution.outcome for a in r.attempts] for r in batch]
        assert {len(own) for own in ran} == {0, 1, 2} and {"invalid", "raised"} == {o for own in ran for o in own}
        for rollout in batch:
            completion = rollout.completion
            assert completion.policy_version == max(0, step - lookahead)
            assert len(completion.mask or completion.token_ids) == len(completion.token_ids) == len(completion.logprobs)
            turns.add(len(rollout.attempts))
            for attempt in rollout.attempts:  # what it was told is in the ids, and is not trained on
                told = policy.tokenizer.encode(attempt.told)
                places = [i for i in range(len(completion.mask)) if [*completion.token_ids[i : i + 3]] == told]
                assert any(not any(completion.mask[i : i + 3]) for i in places)
        with torch.no_grad(), policy.holding(versions[max(0, step - lookahead)]):
            scores = tiny.logprobs_of(policy, [r.completion for r in batch], Sampling())
        for rollout, row in zip(batch, scores.logprobs, strict=True):
            sampled = torch.tensor(rollout.completion.sampled)
            given = torch.tensor(rollout.completion.logprobs)
            assert torch.allclose(row[: len(given)][sampled], given[sampled], atol=1e-4)
            assert not given[~sampled].any()
    assert turns == {0, 1, 2}
    firsts = [r.executions[0].outcome == "finished" for r in rollouts(made)[0]]
    assert reports[0].first_valid_rate == pytest.approx(sum(firsts) / len(firsts))
    assert reports[0].first_valid_rate < reports[0].valid_rate
    assert reports[0].repairs == pytest.approx(sum(len(r.attempts) for r in rollouts(made)[0]) / len(firsts))
    written = [r.completion.written for r in rollouts(made)[0]]
    assert reports[0].completion_tokens == pytest.approx(sum(written) / len(written))


async def test_speed_interruptions_and_engines_change_nothing(tmp_path: Path) -> None:
    for lookahead in (0, 2):
        settings = {"lookahead": lookahead, "refill_rounds": 1}
        quick, slow = (trainer(tmp_path / f"{lookahead} {s}", s, **settings) for s in (0.0, 0.005))
        assert tiny.equal(await trained(quick), await trained(slow))
        folder = tmp_path / f"{lookahead} stopped"
        await trained(trainer(folder, **settings), 2)
        resumed = trainer(folder, **settings)
        resumed.resume(folder / "step_2")
        assert len(resumed.pipeline.state()) == lookahead
        unrepaired = [batch for batch in resumed.pipeline.state() if batch["unrepaired"]]
        assert len(unrepaired) == (lookahead > 0) and all("weights" in batch for batch in unrepaired)
        await resumed.train(3)
        assert tiny.alike(quick, resumed)


async def test_every_batch_refill_and_turn_draws_other_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = tiny.Judges(lambda number, problem: Verdict(None, "llm"))  # no group has contrast, all are replaced
    made, generate, seeds = trainer(tmp_path, judge=judge, refill_rounds=1), LocalEngine.generate, list[int]()

    def recorded(self: LocalEngine, *args: Any, seed: int = 0, **more: Any) -> list[list[Completion]]:
        seeds.append(seed)
        return generate(self, *args, seed=seed, **more)

    monkeypatch.setattr(LocalEngine, "generate", recorded)
    await made.train()
    assert len(seeds) == len({*seeds}) >= 5 * 2 * 3, "of steps, refills and turns"


async def test_a_turn_that_was_cut_off_gets_its_end_which_is_not_trained_on(tmp_path: Path) -> None:
    without, made = trainer(tmp_path / "without", repairs=0), trainer(tmp_path, lookahead=0)
    for each in (without, made):
        await each.train(1)
    assert not any(r.attempts or r.completion.mask for r in rollouts(without)[0])
    cut = [r.completion for r in rollouts(made)[0] if r.attempts and len(r.completion.token_ids) > 5]
    assert cut
    for completion in cut:
        first = completion.mask.index(False)
        ended = completion.token_ids[first - 1] == tiny.EOS
        assert ended or completion.token_ids[first] == tiny.EOS


async def test_the_reward_counts_all_attempts() -> None:
    made = tiny.bandit_trainer(Path("unused"), runner=Picky(1))
    parts = made.parts.rollout
    completion = Completion("7", (4,), (7,), (0.0,), "stop")
    problem, failed = tiny.problem(0), await run_attempt(tiny.problem(0), replace(completion, text="9"), parts)
    last = await run_attempt(problem, completion, parts)
    alone, again = [await conclude(problem, completion, parts, last, before) for before in ((), (failed,))]
    assert alone.reward.total is not None and again.reward.total == alone.reward.total - 1


async def test_an_evaluation_repairs_and_reports_both_attempts() -> None:
    policy = tiny.tiny_policy(rank=8)
    config = load_config(None, ["response_max_length=4", "eval_temperature=1"])
    prompt: Any = lambda question: Prompt("4 5", question.text)  # noqa: E731
    author = PolicyAuthor(policy, LocalEngine(policy, policy.tokenizer), prompt, config)
    parts = RolloutParts(Picky(1, 0.0), tiny.LuckyJudge(), tiny.ten_or_minus_five, repairs=1, judges_attempts=True)
    problems = [tiny.problem(i) for i in range(12)]
    groups = await evaluate(problems, author, parts, samples=2)
    made = [rollout for group in groups for rollout in group.rollouts]
    repaired = [rollout for rollout in made if rollout.attempts]
    assert 0 < len(repaired) < len(made) == 24
    summary = summarise(groups)
    assert summary.first is not None and summary.first.valid_rate.value < summary.valid_rate.value
    assert summary.as_json()["first_attempt"]["valid_rate"] == summary.first.valid_rate.value
    assert summary.repaired == len(repaired) / 24
    assert all(rollout.first.execution.outcome in ("invalid", "raised") for rollout in repaired)
    line = msgspec.json.decode(encoded(RolloutEvent(rollout=repaired[0])), type=RolloutEvent).rollout
    assert line.attempts == repaired[0].attempts and line.first.execution == repaired[0].first.execution
    alone = await evaluate(problems, author, replace(parts, repairs=0), samples=2)
    assert [r.workflow for g in alone for r in g.rollouts] == [r.first.workflow for r in made]
    assert summarise(alone).first is None
