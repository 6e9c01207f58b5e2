"""The shipped policy and settings learn each domain's plan from rewards, and none from shuffled rewards.

Workflows are not run here: a made-up executor is right if the plan is the wanted one of its domain.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.events import Event, RolloutEvent
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.types import DOMAINS, Domain, Exchange, Execution, OperatorCall, Problem, Question, Verdict
from llm_as_judge.workflow.shapes import name_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
WANTED: dict[Domain, str] = {"math": "program", "code": "code_test", "qa": "think"}
STEPS = 20
LAST = 4


class Runner:
    """One call of a fixed size for any workflow; its answer is the plan's name."""

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        name = name_of(source, question.domain)
        call = OperatorCall(name, {}, {}, (Exchange("", "", "stop", 100, 20, 0.0, 0.0),))
        return Execution("finished", name, (call,)) if name else Execution("invalid", None)


class Judge:
    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        return Verdict(answer == WANTED[problem.question.domain], "rules")


async def learned(tmp_path: Path, *, shuffle: bool) -> dict[Domain, float]:
    """Share of the wanted plan among the workflows of the last steps, by domain."""
    config = load_config(ROOT / "config/embedded.yaml", [f"guidance={ROOT / 'config/guidance.yaml'}"])
    # The contrast is sharper than any real executor's, so that no warm-up is needed.
    changes = {"save_every": 0, "shuffle_rewards": shuffle, "warmup_steps": 0}
    config = config.model_copy(update={"training": config.training.model_copy(update=changes)})
    author = load_author(config)
    counts = {d: [0, 0] for d in DOMAINS}

    def log(event: Event) -> None:
        if isinstance(event, RolloutEvent) and event.step > STEPS - LAST:
            counts[event.domain][0] += name_of(event.text, event.domain) == WANTED[event.domain]
            counts[event.domain][1] += 1

    parts = TrainerParts(
        policy=author.policy,
        engine=author.engine,
        sampler=open_problems(config).sampler,
        build_prompt=author.prompt,
        rollout=RolloutParts(Runner(), Judge(), RewardFunction(config.reward)),
        log=log,
        checkpoint_dir=tmp_path,
    )
    await Trainer(parts, config).train(STEPS)
    return {d: right / n for d, (right, n) in counts.items()}


async def test_every_domain_finds_its_own_plan(tmp_path: Path) -> None:
    found = await learned(tmp_path, shuffle=False)
    assert min(found.values()) > 0.5, found


async def test_with_shuffled_rewards_no_domain_does(tmp_path: Path) -> None:
    found = await learned(tmp_path, shuffle=True)
    assert sum(found.values()) / len(found) < 0.3, found
