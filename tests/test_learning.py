"""The shipped policy and settings learn each kind's workflow from rewards, which needs the problem's text.

Workflows are not run here: a made-up executor is right if the draft is the wanted one of the problem's kind.
"""

from pathlib import Path

import pytest
from helpers.tiny import ListBuffer

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import embedded_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.events import Event, RolloutEvent
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.rewards.terms import RewardFunction
from llm_as_judge.rl.pipeline import TrainerParts
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.rl.update import Updater
from llm_as_judge.types import Exchange, Execution, OperatorCall, Problem, Question, Verdict
from llm_as_judge.workflow.shapes import name_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
#: Opposite drafts for two kinds of one domain: who knows only the domain is right every second time at most.
WANTED = {"chains": "program", "relays": "answer"}
STEPS = 16
LAST = 4


class Runner:
    """One call of a fixed size for any workflow; its answer is the plan's name."""

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        name = name_of(source)
        call = OperatorCall(name, {}, {}, (Exchange("", "", "stop", 100, 20, 0.0, 0.0),))
        return Execution("finished", name.split("_")[0], (call,)) if name else Execution("invalid", None)


class Judge:
    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        return Verdict(answer == WANTED[problem.question.dataset], "rules")


async def learned(tmp_path: Path, *overrides: str) -> dict[str, float]:
    """Share of the wanted draft among the workflows of the last steps, by kind."""
    shared = [f"guidance={ROOT / 'config/guidance.yaml'}", "save_every=0", "warmup_steps=0"]
    config = load_config(ROOT / "config/embedded.yaml", [*shared, *overrides])
    author = load_author(config)
    found: dict[str, list[bool]] = {kind: [] for kind in WANTED}

    def log(event: Event) -> None:
        if isinstance(event, RolloutEvent) and event.step > STEPS - LAST:
            dataset = event.rollout.problem.question.dataset
            found[dataset].append(name_of(event.rollout.workflow).split("_")[0] == WANTED[dataset])

    pool = [problem for problem in embedded_problems("train")[:300] if problem.question.dataset in WANTED]
    parts = TrainerParts(
        policy=author.policy, learner=Updater(author.policy, config.training), engine=author.engine, sampling=PLAIN,
        sampler=DomainSampler({"math": pool}, {"math": 1.0, "code": 0.0, "qa": 0.0}, config.training.seed),
        prompt=author.prompt, buffer=ListBuffer(),
        rollout=RolloutParts(Runner(), Judge(), RewardFunction(config.reward)), log=log,
        checkpoint_dir=tmp_path,
    )  # fmt: skip
    await Trainer(parts, config.training).train(STEPS)
    return {kind: sum(right) / len(right) for kind, right in found.items()}


async def test_every_kind_of_one_domain_finds_its_own_draft(tmp_path: Path) -> None:
    found = await learned(tmp_path)
    assert min(found.values()) > 0.6, found


async def test_without_the_problems_text_only_the_domain_is_learned(tmp_path: Path) -> None:
    found = await learned(tmp_path, "show_problem=false")
    assert sum(found.values()) / len(found) < 0.6, found
