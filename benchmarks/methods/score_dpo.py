"""ScoreFlow (Wang et al. 2025, arXiv:2502.04306) on our policy: score-weighted DPO on pairs of its own workflows.

In each of three rounds the policy writes several workflows per problem, which are run and scored. Any two workflows of
a problem with different scores are a pair; pairs are drawn in proportion to the cube of the difference, and learned
from once. The loss is DPO's (arXiv:2305.18290) with each log-ratio weighted by its score s:

    -log sigmoid(beta * (s_w * log pi/pi_ref(better) - (1 - s_l) * log pi/pi_ref(worse)))

Rounds, drawing, number of pairs, loss and beta are those of ScoreFlow's code. Differences: a score is GRPO's reward of
one run, scaled to [0, 1], instead of the accuracy of three runs; workflows that cannot run have the lowest score and
are not written again; the reference is the policy at the start of the round; a round ends when its share of the
executor tokens is spent.

    python benchmarks/methods/score_dpo.py --tokens 200000
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

import torch
from common import arguments, report
from torch import Tensor
from torch.nn.functional import logsigmoid

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import PolicyAuthor, evaluate
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.policy.scoring import score
from llm_as_judge.rewards.terms import RIGHT, TERMS
from llm_as_judge.rl.rollout import RolloutParts, collect
from llm_as_judge.types import Completion, Group, Problem

ROUNDS, BETA, PAIRS, POWER = 3, 0.1, 600, 3
#: Learning rate as a share of GRPO's: at the full rate half of the nano policy's workflows become invalid.
RATE = 1 / 3


@dataclass(frozen=True)
class Pair:
    chosen: Completion
    rejected: Completion
    chosen_score: float
    rejected_score: float


def scaled(total: float, weights: Mapping[str, float]) -> float:
    """Scale a reward from 0 (the lowest possible) to 1 (the highest), clipped."""
    low = sum(TERMS[name].sign * weight * TERMS[name].worst for name, weight in weights.items())
    high = sum(RIGHT * weight for name, weight in weights.items() if TERMS[name].sign > 0)
    return min(1.0, max(0.0, (total - low) / (high - low)))


def pairs_of(groups: Sequence[Group], weights: Mapping[str, float]) -> Iterator[Pair]:
    """Yield every two scored workflows of a problem with different scores."""
    for group in groups:
        scored = [(scaled(r.reward.total, weights), r) for r in group.rollouts if r.reward.total is not None]
        for one, other in combinations(scored, 2):
            (high, better), (low, worse) = (one, other) if one[0] > other[0] else (other, one)
            if high > low:
                yield Pair(better.completion, worse.completion, high, low)


def log_probabilities(policy: Policy, pairs: Sequence[Pair]) -> Tensor:
    """Compute log pi of the chosen and the rejected completions. [2, pairs]"""
    completions = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    scores = score(policy.base, completions, PLAIN, "padded")
    return (scores.logprobs * scores.mask).sum(-1).view(2, -1)


def score_dpo_loss(logratios: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """Compute the loss of ``logratios`` [2, pairs], log pi/pi_ref; with scores 1 and 0 it is DPO's."""
    chosen = torch.tensor([pair.chosen_score for pair in pairs], device=logratios.device)
    rejected = torch.tensor([pair.rejected_score for pair in pairs], device=logratios.device)
    return -logsigmoid(BETA * (chosen * logratios[0] - (1 - rejected) * logratios[1])).mean()


def learn(policy: Policy, optimizer: torch.optim.Optimizer, pairs: Sequence[Pair], size: int, clip: float) -> float:
    """Learn from ``pairs`` once, ``size`` in a step; the reference is the policy before. Returns the mean loss."""
    batches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    with torch.no_grad():
        references = [log_probabilities(policy, batch) for batch in batches]
    losses = []
    for batch, reference in zip(batches, references, strict=True):
        loss = score_dpo_loss(log_probabilities(policy, batch) - reference, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.trainable_parameters, clip)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


async def sample(author: PolicyAuthor, problems: Sequence[Problem], parts: RolloutParts, seed: int) -> list[Group]:
    """Sample a group of workflows for each problem; they are run, judged and rewarded."""
    config, prompts = author.config, [author.prompt(problem.question) for problem in problems]
    author.engine.sync(author.policy, seed)
    written = author.engine.generate(
        [author.policy.encode(prompt) for prompt in prompts],
        config.training.num_return_sequences_in_group,
        sampling=Sampling(config.generation.temperature, config.generation.top_p, config.generation.top_k),
        max_new_tokens=config.training.response_max_length,
        seed=seed,
    )
    groups = [[replace(c, prefill=p.prefill) for c in group] for group, p in zip(written, prompts, strict=True)]
    return await collect(problems, groups, parts, seed=seed)


async def run(config: Config, budget: int, limit: int | None) -> None:
    training, author, sampler = config.training, load_author(config), open_problems(config, measured=False).sampler
    policy, weights = author.policy, config.reward.reward_weights
    optimizer = torch.optim.AdamW(policy.trainable_parameters, lr=RATE * training.learning_rate, weight_decay=0.0)
    rng, spent, batches = Random(training.seed), 0, 0
    async with open_services(config) as services:
        for number in range(ROUNDS):
            groups: list[Group] = []
            while not groups or spent < budget * (number + 1) / ROUNDS:
                problems = sampler.sample(training.rollout_batch_size)
                batches += 1  # every batch has a seed of its own, and makes the engine take the new weights
                groups += await sample(author, problems, services.training, training.seed + batches)
                spent += sum(r.execution.tokens for group in groups[-len(problems) :] for r in group.rollouts)
            pairs = list(pairs_of(groups, weights))
            shares = [(pair.chosen_score - pair.rejected_score) ** POWER for pair in pairs]
            drawn = rng.choices(pairs, shares, k=min(PAIRS, len(pairs))) if pairs else []
            size = max(1, training.rollout_batch_size * training.num_return_sequences_in_group // 2)
            loss = learn(policy, optimizer, drawn, size, training.max_grad_norm) if drawn else float("nan")
            print(f"round {number + 1}: {len(groups)} problems, {len(pairs)} pairs, {spent:,} tokens, loss {loss:.3f}")
        trained = replace(author, version=training.seed + batches + 1)
        groups = await evaluate(heldout_problems(config.data, limit), trained, services.official)
    report("ScoreFlow-style DPO", groups, spent)


if __name__ == "__main__":
    asyncio.run(run(*arguments("ScoreFlow-style DPO on pairs of the policy's own workflows")))
