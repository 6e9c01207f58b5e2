"""ScoreFlow's way on our environment (Wang et al. 2025, arXiv:2502.04306): the policy learns by score-weighted DPO from
pairs of its own workflows.

Three rounds. In each the policy writes several workflows for each of some problems, which are run and scored, and every
two of one problem whose scores differ are a pair. Pairs are drawn, more often the further their scores are apart, and
learned from once. Score-DPO's loss is DPO's (arXiv:2305.18290) with the log-ratio of the better workflow weighted by
its score s_w, that of the worse one by 1 - s_l:

    -log sigmoid(beta * (s_w * log pi/pi_ref(better) - (1 - s_l) * log pi/pi_ref(worse)))

From ScoreFlow, by its code: the rounds, how pairs are drawn and how many, the loss and its beta. What differs: a score
is what GRPO learns from, the reward on a scale from 0 to 1, of one run instead of the share right of three; a workflow
that cannot be run has the worst score instead of being written anew; the reference is the policy at the beginning of
the round, there it is the one before all training; a round ends when its share of the executor tokens is spent. The
optimiser is the policy's own, at a part of its rate: theirs (1e-6) belongs to an adapter of a model of 8e9 weights.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from random import Random
from typing import Any

from llm_as_judge.config.schema import TrainingConfig
from llm_as_judge.evaluation.metrics import mean, number
from llm_as_judge.policy.device import Device
from llm_as_judge.policy.scoring import Sampling
from llm_as_judge.rl.credit import CreditedGroup, credit
from llm_as_judge.rl.update import Updater
from llm_as_judge.types import Group, Rollout

#: ScoreFlow's: rounds, DPO's beta, pairs of a round (of its smallest set; 2000 for the others), and the power of the
#: scores' difference by which they are drawn.
ROUNDS, BETA, PAIRS, POWER = 3, 0.1, 600, 3

#: Learning rate, as a share of the policy's for GRPO. At the whole of it half of what the embedded policy writes after
#: a round cannot be run: DPO lowers both workflows of a pair (docs/results.md).
RATE = 1 / 3

#: All that decides what the method comes to besides the configuration, for those who keep it.
FIXED = (ROUNDS, BETA, PAIRS, POWER, RATE)

#: DPO's log-probs are the model's own, whatever distribution workflows are sampled from.
_PLAIN = Sampling()
#: Batches of a round, for executors that do not tell their tokens.
_MOST = 20


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rollouts of one problem, and their scores between 0 and 1."""

    chosen: Rollout
    rejected: Rollout
    chosen_score: float
    rejected_score: float

    @property
    def weight(self) -> float:
        """How often it is drawn, against others."""
        return (self.chosen_score - self.rejected_score) ** POWER


@dataclass(frozen=True, slots=True)
class PairLoss:
    """Of one pair, with its derivatives by the log-ratios of both rollouts."""

    value: float
    by_chosen: float
    by_rejected: float


@dataclass(frozen=True, slots=True)
class Learned:
    """Of a round's pairs, each as it was before the step that learned from it: means of the loss and of both log-ratios
    times beta (TRL's ``rewards/chosen`` and ``rewards/rejected``), and the share of pairs in which the first is larger.
    """

    steps: int = 0
    loss: float = math.nan
    chosen: float = math.nan
    rejected: float = math.nan
    accuracy: float = math.nan


@dataclass(frozen=True, slots=True)
class Round:
    """``tokens`` of the executor, ``dearest`` those of the batch that took most."""

    problems: int
    rollouts: int
    unscored: int
    tokens: int
    dearest: int
    reward: float  # mean of the scored
    right: float  # share of the scored
    valid: float  # share
    pairs: int  # that there were
    drawn: int
    learned: Learned

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Round:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**{**plain, "learned": Learned(**plain["learned"])})

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        learned = told.pop("learned")
        return {k: number(v) if isinstance(v, float) else v for k, v in {**told, **learned}.items()}


def pairs_of(groups: Sequence[CreditedGroup], scaled: Callable[[float], float]) -> list[Pair]:
    """Every two rollouts of a problem whose rewards are known and differ; ``scaled`` makes a reward a score."""
    found = []
    for credited in groups:
        scores = (math.nan if math.isnan(reward) else scaled(reward) for reward in credited.rewards)
        known = [(s, r) for s, r in zip(scores, credited.group.rollouts, strict=True) if not math.isnan(s)]
        for (one, first), (other, second) in combinations(known, 2):
            if one > other:
                found.append(Pair(first, second, one, other))
            elif other > one:
                found.append(Pair(second, first, other, one))
    return found


def pair_loss(pair: Pair, chosen_logratio: float, rejected_logratio: float) -> PairLoss:
    """Score-DPO's loss; with scores of 1 and 0 it is DPO's."""
    by_chosen, by_rejected = BETA * pair.chosen_score, -BETA * (1 - pair.rejected_score)
    logit = by_chosen * chosen_logratio + by_rejected * rejected_logratio
    value = max(-logit, 0.0) + math.log1p(math.exp(-abs(logit)))
    slope = (math.tanh(logit / 2) - 1) / 2  # of the value by the logit: -sigmoid(-logit)
    return PairLoss(value, slope * by_chosen, slope * by_rejected)


def updater_settings(config: TrainingConfig) -> TrainingConfig:
    """Settings with which GRPO's update follows a gradient it is given: on its own weights the ratio is 1, and what is
    left of the loss is the sum of each log-prob times its advantage, over the number of tokens.
    """
    plain = {"loss_type": "dapo", "beta": 0.0, "ppo_epochs": 1, "importance_sampling": "off"}
    return config.model_copy(update={**plain, "learning_rate": RATE * config.learning_rate})


def learn(updater: Updater, drawn: Sequence[Pair], size: int, version: int) -> Learned:
    """Learns from each of ``drawn`` once, ``size`` of them in an optimiser step. The reference is the policy as it is
    now, which ``updater`` has under ``updater_settings`` and whose rollouts bear ``version``.
    """
    reference = dict[int, float]()
    for batch in _batches(drawn, size):
        new = [rollout for rollout in _rollouts(batch) if id(rollout) not in reference]
        reference |= _logps(updater, new)
    losses, chosen, rejected = list[float](), list[float](), list[float]()
    for batch in _batches(drawn, size):
        rollouts = _rollouts(batch)
        logratios = {key: logp - reference[key] for key, logp in _logps(updater, rollouts).items()}
        slopes = dict.fromkeys(logratios, 0.0)
        for pair in batch:
            better, worse = id(pair.chosen), id(pair.rejected)
            loss = pair_loss(pair, logratios[better], logratios[worse])
            slopes[better] += loss.by_chosen / len(batch)
            slopes[worse] += loss.by_rejected / len(batch)
            losses.append(loss.value)
            chosen.append(BETA * logratios[better])
            rejected.append(BETA * logratios[worse])
        # Against the loss's slope, times the tokens that the update divides by.
        tokens = sum(len(rollout.completion.token_ids) for rollout in rollouts)
        worth = tuple(-tokens * slopes[id(rollout)] for rollout in rollouts)
        updater.update([CreditedGroup(Group(rollouts[0].problem, tuple(rollouts)), worth, worth)], _PLAIN, version)
    accuracy = mean([float(better > worse) for better, worse in zip(chosen, rejected, strict=True)])
    return Learned(math.ceil(len(drawn) / size), mean(losses), mean(chosen), mean(rejected), accuracy)


@dataclass
class ScoreDPO:
    """``sample`` brings a batch of groups for a round, by its number and the batch's in it, written by the present
    weights; ``updater`` has ``updater_settings``; ``scaled`` makes a reward a score between 0 and 1. ``rounds`` are
    those that are done.
    """

    updater: Updater
    sample: Callable[[int, int], Awaitable[Sequence[Group]]]
    scaled: Callable[[float], float]
    device: Device
    rounds: list[Round] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Of the executor, of all rounds."""
        return sum(one.tokens for one in self.rounds)

    async def round(self, budget: int, watch: Callable[[int], None] = lambda tokens: None) -> Round | None:
        """One round within its share of ``budget`` executor tokens for all of them; ``watch`` is told of those spent.

        No batch is begun that might not fit, if it is as dear as the dearest so far; nobody knows that of the first.
        None where there is no room for another, or all are done.
        """
        number = len(self.rounds)
        if number == ROUNDS:
            return None
        share, spent = budget * (number + 1) // ROUNDS, self.tokens
        dearest = max((one.dearest for one in self.rounds), default=0)
        groups = list[Group]()
        batch = 0
        while spent + dearest <= (share if groups else budget) and (spent or batch < _MOST):
            fresh = await self.sample(number, batch)
            tokens = sum(rollout.execution.tokens for group in fresh for rollout in group.rollouts)
            spent, dearest, batch = spent + tokens, max(dearest, tokens), batch + 1
            groups += fresh
            watch(spent)
        if not groups:
            return None
        done = await self.device.run(self._learned, groups, spent - self.tokens, dearest)
        self.rounds.append(done)
        return done

    def _learned(self, groups: Sequence[Group], tokens: int, dearest: int) -> Round:
        config, number = self.updater.config, len(self.rounds)
        rng = Random(f"score-dpo/{config.seed}/{number}")
        credited = credit(groups, config.scale_rewards, rng.getrandbits(32) if config.shuffle_rewards else None)
        pairs, learned = pairs_of(credited, self.scaled), Learned()
        drawn = rng.choices(pairs, [pair.weight for pair in pairs], k=min(PAIRS, len(pairs))) if pairs else []
        if drawn:
            size = max(1, config.rollout_batch_size * config.num_return_sequences_in_group // 2)
            learned = learn(self.updater, drawn, size, number)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        scored = [rollout for rollout in rollouts if rollout.reward.total is not None]
        return Round(
            problems=len(groups),
            rollouts=len(rollouts),
            unscored=len(rollouts) - len(scored),
            tokens=tokens,
            dearest=dearest,
            reward=mean([rollout.reward.total or 0.0 for rollout in scored]),
            right=mean([float(rollout.verdict.correct is True) for rollout in scored]),
            valid=mean([float(rollout.valid) for rollout in rollouts if rollout.execution.outcome != "fault"]),
            pairs=len(pairs),
            drawn=len(drawn),
            learned=learned,
        )


def _batches(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]


def _rollouts(pairs: Sequence[Pair]) -> list[Rollout]:
    """Those in ``pairs``, each once."""
    return list({id(rollout): rollout for pair in pairs for rollout in (pair.chosen, pair.rejected)}.values())


def _logps(updater: Updater, rollouts: Sequence[Rollout]) -> Mapping[int, float]:
    """Log-prob of each whole completion under the present weights, by the rollout's identity."""
    if not rollouts:
        return {}
    completions = [rollout.completion for rollout in rollouts]
    layout, budget = updater.checked_layout(completions, _PLAIN), updater.config.micro_batch_tokens
    rows = updater.policy.own_logprobs(completions, _PLAIN, layout, budget)
    return {id(rollout): float(row.sum()) for rollout, row in zip(rollouts, rows, strict=True)}
