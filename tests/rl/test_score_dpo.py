"""Score-weighted DPO: the loss by hand, by automatic differentiation and by TRL; which pairs there are; learning."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.rollouts import problem
from helpers.tiny import EchoRunner, LuckyJudge, bandit_trainer
from helpers.update_case import batch, fresh
from torch.nn.functional import logsigmoid

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.evaluation.peers.score_dpo import (
    BETA,
    PAIRS,
    Pair,
    Round,
    ScoreDPO,
    learn,
    pair_loss,
    pairs_of,
    updater_settings,
)
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.rl.credit import credit
from llm_as_judge.rl.pipeline import Pipeline
from llm_as_judge.rl.report import Timer
from llm_as_judge.rl.update import Updater
from llm_as_judge.types import (
    Completion,
    Exchange,
    Execution,
    Group,
    OperatorCall,
    Problem,
    Question,
    Reward,
    Rollout,
    Verdict,
)

SIZE = 8


def rollout(reward: float | None, completion: Completion | None = None, **verdict: Any) -> Rollout:
    judged = Verdict(None if reward is None else reward > 0, **{"tier": "rules", **verdict})
    completion = completion or Completion("", (1,), (2,), (-1.0,), "stop")
    return Rollout(problem("p", "math"), completion, "", Execution("finished", "1"), judged, Reward(reward))


def group(*rollouts: Rollout) -> Group:
    return Group(problem("p", "math"), rollouts)


def pairs(policy: Policy, scores: Sequence[float]) -> list[Pair]:
    """Of each of three prompts with four workflows, the first against the others, with ``scores`` by turns."""
    made = [rollout(0.0, completion) for completion in batch(policy)]
    return [
        Pair(made[start], made[start + i], scores[2 * i - 2], scores[2 * i - 1])
        for start in (0, 4, 8)
        for i in (1, 2, 3)
    ]


def settings(**more: Any) -> TrainingConfig:
    return updater_settings(
        TrainingConfig(**{"max_grad_norm": 1e9, "response_max_length": 12, "learning_rate": 1e-2, "beta": 0.5, **more})
    )


def at_second_step(updater: Updater, look: Callable[[list[torch.Tensor]], None]) -> None:
    """Calls ``look`` with the gradient of the second optimiser step, before it."""
    step, calls = updater.optimizer.step, Counter[str]()

    def watch(*arguments: Any, **named: Any) -> Any:
        calls["step"] += 1
        if calls["step"] == 2:
            look([p.grad.clone() for p in updater.policy.trainable_parameters() if p.grad is not None])
        return step(*arguments, **named)

    updater.optimizer.step = watch  # type: ignore[method-assign]


def apart(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


def logps(policy: Policy, rollouts: Sequence[Rollout]) -> torch.Tensor:
    scores = policy.logprobs([one.completion for one in rollouts], Sampling())
    return (scores.logprobs * scores.mask).sum(-1)


def test_the_loss_by_hand() -> None:
    pair = Pair(rollout(1.0), rollout(0.0), 0.9, 0.2)
    # 0.1 * (0.9 * 2 - 0.8 * -3) = 0.42; ln(1 + exp(-0.42)) = 0.5050370; 1 / (1 + exp(0.42)) = 0.3965168
    found = pair_loss(pair, 2.0, -3.0)
    assert found.value == pytest.approx(0.5050370, abs=1e-7)
    assert found.by_chosen == pytest.approx(-0.09 * 0.3965168, abs=1e-8)
    assert found.by_rejected == pytest.approx(0.08 * 0.3965168, abs=1e-8)
    assert pair_loss(pair, -1e6, 1e6).value == pytest.approx(0.17e6) and pair_loss(pair, 1e6, -1e6).value == 0


def test_plain_dpo_is_the_limit_of_scores_one_and_zero() -> None:
    found = pair_loss(Pair(rollout(1.0), rollout(0.0), 1.0, 0.0), 0.7, -0.4)
    assert found.value == pytest.approx(-float(logsigmoid(torch.tensor(BETA * 1.1))), abs=1e-7)


@pytest.mark.parametrize("cut", [{}, {"shared_prefix": False, "micro_batch_tokens": 60}, {"micro_batch_tokens": 9}])
def test_the_updates_gradient_is_the_losss(cut: dict[str, Any]) -> None:
    """At the second step, where policy and reference are apart; rollouts are in several pairs."""
    policy = fresh()
    drawn = pairs(policy, (0.9, 0.1, 0.8, 0.5, 0.6, 0.3))[:SIZE] * 2
    with torch.no_grad():
        reference = logps(policy, [one for pair in drawn[:SIZE] for one in (pair.chosen, pair.rejected)])
    worst: list[float] = []

    def look(found: list[torch.Tensor]) -> None:
        rows = logps(policy, [one for pair in drawn[:SIZE] for one in (pair.chosen, pair.rejected)]) - reference
        chosen = torch.tensor([pair.chosen_score for pair in drawn[:SIZE]])
        rejected = torch.tensor([pair.rejected_score for pair in drawn[:SIZE]])
        loss = -logsigmoid(BETA * (chosen * rows[::2] - (1 - rejected) * rows[1::2])).mean()
        worst.append(apart(found, torch.autograd.grad(loss, policy.trainable_parameters())))

    updater = Updater(policy, settings(**cut))
    at_second_step(updater, look)
    learned = learn(updater, drawn, SIZE, 0)
    assert len(worst) == 1 and worst[0] < 1e-4
    assert learned.steps == 2 and learned.loss < math.log(2), "the first step starts at the reference: ln 2"
    assert learned.chosen > learned.rejected


def test_it_is_trls_dpo_where_scores_are_one_and_zero(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed; make peers installs it")
    from test_trl import words_tokenizer

    ours, theirs = fresh(), fresh()
    drawn = [pair for pair in pairs(ours, (1.0, 0.0) * 3)][:SIZE] * 2
    from datasets import Dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl.DPOTrainer(
            model=theirs.model,
            args=trl.DPOConfig(
                output_dir=str(tmp_path), beta=BETA, bf16=False, use_cpu=True, report_to=[], disable_tqdm=True,
                gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_dict({"prompt": ["go"], "chosen": [" 4"], "rejected": [" 5"]}),
            processing_class=words_tokenizer(),
        )  # fmt: skip
    rows = [pair.chosen.completion for pair in drawn[:SIZE]] + [pair.rejected.completion for pair in drawn[:SIZE]]
    longest = max(len(c.prompt_ids) + len(c.token_ids) for c in rows)
    given = {name: torch.zeros(len(rows), longest, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for row, c in enumerate(rows):
        end = len(c.prompt_ids) + len(c.token_ids)
        given["input_ids"][row, :end] = torch.tensor([*c.prompt_ids, *c.token_ids])
        given["attention_mask"][row, :end] = 1
        mask[row, len(c.prompt_ids) : end] = 1
    worst: list[float] = []

    def look(found: list[torch.Tensor]) -> None:
        """TRL's reference is a copy of the adapter as it was; its policy comes to where ours is now."""
        own = {name: p for name, p in theirs.model.named_parameters() if ".default." in name}
        for (name, parameter), now in zip(own.items(), ours.trainable_parameters(), strict=True):
            assert parameter.shape == now.shape, name
            parameter.data.copy_(now.data)
        theirs.model.zero_grad(set_to_none=True)
        trainer._compute_loss(theirs.model, {**given, "completion_mask": mask}, False).backward()
        worst.append(apart(found, [p.grad for p in own.values() if p.grad is not None]))

    updater = Updater(ours, settings())
    at_second_step(updater, look)
    learn(updater, drawn, SIZE, 0)
    assert len(worst) == 1 and worst[0] < 1e-3


def test_pairs_are_of_one_problem_and_of_known_scores_that_differ() -> None:
    best, middle, tied, worst = rollout(9.0), rollout(2.0), rollout(2.0), rollout(-3.0)
    mixed = group(best, rollout(None), tied, middle, worst)
    left_out = group(rollout(9.0), rollout(None, tier="llm"), rollout(-3.0))  # the judge abstained
    found = pairs_of(credit([mixed, group(rollout(5.0)), left_out], "none"), lambda reward: (reward + 3) / 12)
    told = {(id(pair.chosen), id(pair.rejected)): (pair.chosen_score, pair.rejected_score) for pair in found}
    assert told == {
        (id(best), id(tied)): (1.0, 5 / 12),
        (id(best), id(middle)): (1.0, 5 / 12),
        (id(best), id(worst)): (1.0, 0.0),
        (id(tied), id(worst)): (5 / 12, 0.0),
        (id(middle), id(worst)): (5 / 12, 0.0),
    }
    assert [pair.weight for pair in found if pair.chosen is best][-1] == 1
    assert next(pair.weight for pair in found if pair.chosen is tied) == pytest.approx((5 / 12) ** 3)


class Metered(EchoRunner):
    """Each workflow takes ten executor tokens."""

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        return Execution("finished", source, (OperatorCall("Custom", {}, {}, (Exchange("", "", "stop", 7, 3, 0, 0),)),))


class Half(LuckyJudge):
    """Nobody knows of every other workflow."""

    def __init__(self) -> None:
        self.asked = 0

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        self.asked += 1
        return await super().verdict(problem, answer) if self.asked % 2 else Verdict(None, "none", "lost")


def bandit(directory: Path, judge: Any = None, runner: Any = None, **more: Any) -> ScoreDPO:
    more = {"learning_rate": 3e-2, **more}
    trainer = bandit_trainer(directory, runner=runner or Metered(), judge=judge, rollout_batch_size=6, **more)
    parts, config = trainer.parts, trainer.config
    pipeline, updater = Pipeline(parts, config), Updater(parts.policy, updater_settings(config.training))

    async def sample(number: int, batch: int) -> list[Group]:
        return await pipeline.more(number, 6, batch, Timer())

    return ScoreDPO(updater, sample, lambda reward: (reward + 5) / 15, parts.device)


async def rounds(method: ScoreDPO, budget: int) -> list[Round]:
    while await method.round(budget) is not None:
        pass
    return method.rounds


@pytest.mark.parametrize("seed", [0, 1])
async def test_it_learns_a_bandit_and_not_from_shuffled_scores(tmp_path: Path, seed: int) -> None:
    async def after(**more: Any) -> float:
        method = bandit(tmp_path, seed=seed, **more)
        await rounds(method, 12 * 360)
        verdicts = [r.verdict for g in await method.sample(3, 0) for r in g.rollouts]
        assert method.rounds[0].right < 0.5
        return sum(v.correct is True for v in verdicts) / len(verdicts)

    assert await after() > 0.85
    assert await after(shuffle_rewards=True) < 0.6


@pytest.mark.parametrize(
    ("budget", "batches"), [(100, [1]), (360, [1]), (800, [1, 1]), (1100, [1, 1, 1]), (4000, [3, 4, 4])]
)
async def test_it_keeps_to_its_tokens(tmp_path: Path, budget: int, batches: list[int]) -> None:
    """360 a batch; only the first one nobody can refuse."""
    told: list[int] = []
    method = bandit(tmp_path)
    while await method.round(budget, told.append) is not None:
        pass
    assert [one.tokens // 360 for one in method.rounds] == batches
    assert method.tokens == told[-1] == 360 * sum(batches) <= max(budget, 360)
    assert [one.rollouts for one in method.rounds] == [36 * n for n in batches]


async def test_an_executor_that_tells_no_tokens_comes_to_an_end(tmp_path: Path) -> None:
    method = bandit(tmp_path, runner=EchoRunner(), num_return_sequences_in_group=2, learning_rate=1e-6)
    assert [one.problems for one in await rounds(method, 1)] == [120, 120, 120]


async def test_unscored_workflows_teach_nothing(tmp_path: Path) -> None:
    whole, half = bandit(tmp_path), bandit(tmp_path, judge=Half())
    await whole.round(360), await half.round(360)
    assert half.rounds[0].unscored == 18 and whole.rounds[0].unscored == 0
    assert 0 < half.rounds[0].pairs < whole.rounds[0].pairs / 2
    assert math.isfinite(half.rounds[0].learned.loss)


async def test_without_a_difference_there_is_nothing_to_learn(tmp_path: Path) -> None:
    class Never(LuckyJudge):
        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            return Verdict(False, "rules")

    method = bandit(tmp_path, judge=Never())
    before = [p.detach().clone() for p in method.updater.policy.trainable_parameters()]
    (done,) = await rounds(method, 360)
    assert (done.pairs, done.drawn, done.learned.steps) == (0, 0, 0) and done.as_json()["loss"] is None
    assert all(torch.equal(a, b) for a, b in zip(before, method.updater.policy.trainable_parameters(), strict=True))


async def test_pairs_are_drawn_by_the_cube_of_their_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two kinds of pairs, apart by 1 and by 0.5, eight in nine that are drawn are of the first."""
    drawn: list[Pair] = []

    def watch(updater: Updater, pairs: Sequence[Pair], size: int, version: int) -> Any:
        drawn.extend(pairs)
        return learn(updater, pairs[:1], size, version)

    monkeypatch.setattr("llm_as_judge.evaluation.peers.score_dpo.learn", watch)
    method = bandit(tmp_path)
    tens = [rollout(10.0), rollout(-5.0), rollout(2.5)]
    groups = [Group(one.problem, (one, other)) for one, other in ((tens[0], tens[1]), (tens[2], tens[1]))] * PAIRS
    done = method._learned(groups, 0, 0)
    assert (done.pairs, done.drawn) == (2 * PAIRS, PAIRS)
    far = sum(pair.chosen_score == 1 for pair in drawn) / PAIRS
    assert far == pytest.approx(8 / 9, abs=0.03)
