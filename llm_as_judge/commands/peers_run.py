"""The field's other ways on the same problems and executor, each within so many executor tokens; for ``compare``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import Problems, open_problems
from llm_as_judge.assembly.progress import Progress
from llm_as_judge.assembly.recording import plan_records, policy_results, recording
from llm_as_judge.assembly.services import Services
from llm_as_judge.config.identity import decisive, digest
from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.peers import aflow
from llm_as_judge.evaluation.peers.score_dpo import FIXED, Round, ScoreDPO, updater_settings
from llm_as_judge.evaluation.records import Record
from llm_as_judge.files import locked, write_json
from llm_as_judge.llm.cache import ResponseCache
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.pipeline import Pipeline
from llm_as_judge.rl.report import Timer
from llm_as_judge.rl.update import Updater
from llm_as_judge.runlog import EventLog
from llm_as_judge.types import Domain, Group, Problem, Question
from llm_as_judge.workflow.contract import contract

#: Training problems of a dataset that each workflow of a search is tried on.
VALIDATION = 24


@dataclass(frozen=True, slots=True)
class Found:
    """What a way came to: ``records`` on the problems that are compared on, ``told`` of how it was found, for JSON."""

    name: str
    records: Sequence[Record]
    told: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.told}


@dataclass(frozen=True, slots=True)
class Contest:
    """What a way is given: it searches on ``training`` for at most ``budget`` executor tokens, and runs what it found
    on ``problems``, whose records are kept under the name of ``source``.
    """

    config: Config
    source: str
    problems: Sequence[Problem]
    training: Sequence[Problem]
    budget: int
    services: Services
    progress: Progress


async def search_as_aflow(contest: Contest) -> Found:
    """One workflow for each dataset of ``problems``, with its share of the tokens; AFlow's first round for one without
    training problems.
    """
    config, problems = contest.config, contest.problems
    trees: dict[str, aflow.Tree] = {}
    for name in dict.fromkeys(_dataset(problem.question) for problem in problems):
        own = [problem for problem in problems if _dataset(problem.question) == name]
        tried_on = [problem for problem in contest.training if _dataset(problem.question) == name][:VALIDATION]
        share, spent = round(contest.budget * len(own) / len(problems)) if tried_on else 0, 0

        async def trial(
            text: str, name: str = name, tried_on: Sequence[Problem] = tried_on, share: int = share
        ) -> Sequence[Record]:
            nonlocal spent
            records = await _recorded(contest, "training", tried_on, {name: text})
            spent += sum(record.tokens for record in records)
            if share:
                contest.progress.advance(f"AFlow-style search, {name}", min(spent, share), share)
            return records

        domain, rng = own[0].question.domain, Random(config.training.seed)
        trees[name] = await aflow.grow(aflow.first_round(domain), _editor(contest, domain, rng), trial, share, rng)
    texts = {name: tree.best.text for name, tree in trees.items()}
    told = {"datasets": {name: tree.as_json() for name, tree in trees.items()}}
    return Found("AFlow-style search", await _recorded(contest, contest.source, problems, texts), told)


def _dataset(question: Question) -> str:
    """What is no benchmark's may be of several domains, each of which has a workflow of its own."""
    return question.dataset if question.dataset in DATASETS else f"{question.dataset} {question.domain}".strip()


def _editor(contest: Contest, domain: Domain, rng: Random) -> aflow.Editor:
    config = contest.config
    operators = load_operators(config.workflow.operators)
    if config.executor.provider == "embedded":
        return aflow.RecipeEditor(domain, operators, rng)
    told = contract(operators, config.workflow.max_calls)
    kept = digest(decisive(config, ("executor", "workflow")))[:8]
    cache = ResponseCache(config.output.results_dir / "comparison" / f"edits_{kept}.sqlite")
    return aflow.ModelEditor(contest.services.clients["executor"], told, domain, cache, config.training.seed)


async def _recorded(
    contest: Contest, source: str, problems: Sequence[Problem], texts: Mapping[str, str]
) -> Sequence[Record]:
    """Of the workflow of each problem's dataset."""
    author = Given(lambda question: texts[_dataset(question)])
    file = plan_records(contest.config, source, problems, "aflow", [f"{name}\n{text}" for name, text in texts.items()])
    with recording(file) as ledger:
        return (await evaluate(problems, author, contest.services.official, log=ledger)).records


async def learn_by_score_dpo(contest: Contest) -> Found:
    """The untrained policy learns from the problems that a training run draws, in its order, with as many workflows for
    each. Adapter and rounds are kept by what decides them; one that was interrupted goes on after its last whole round.
    """
    config, name = contest.config, "ScoreFlow-style DPO"
    problems = open_problems(config, measured=False)
    told = decisive(config, ("model", "training", "generation", "workflow", "executor", "judge", "sandbox", "reward"))
    kept = digest([told, problems.digest, contest.budget, FIXED])[:8]
    folder = config.output.results_dir / "comparison" / f"{config.base_model.key}_score_dpo_{kept}"

    def under_way(holder: str) -> ConfigError:
        return ConfigError(f"{folder} is being written by another process ({holder}); wait for it")

    with locked(folder / ".lock", under_way):
        file = folder / "rounds.json"
        if not file.exists():
            write_json(file, await _learned(contest, problems, folder, name))
        found = json.loads(file.read_text("utf-8"))
    adapter = folder / f"step_{len(found['rounds'])}"
    records = await policy_results(
        name, config, contest.source, contest.problems, adapter, contest.services, contest.progress
    )
    return Found(name, records, {**found, "adapter": str(adapter)})


async def _learned(contest: Contest, problems: Problems, folder: Path, name: str) -> dict[str, Any]:
    config, budget = contest.config, contest.budget
    author = load_author(config)
    with EventLog(folder / "events.jsonl") as log:
        parts = TrainerParts(
            policy=author.policy,
            engine=author.engine,
            sampler=problems.sampler,
            build_prompt=author.prompt,
            rollout=contest.services.training,
            log=log.log,
            checkpoint_dir=folder,
        )
        pipeline, updater = Pipeline(parts, config), Updater(author.policy, updater_settings(config.training))

        async def sample(number: int, batch: int) -> list[Group]:
            """The first is the very batch that a training run begins with."""
            return await pipeline.more(number, config.training.rollout_batch_size, batch, Timer())

        method = ScoreDPO(updater, sample, RewardFunction(config.reward).scaled, parts.device)
        if (newest := checkpoint.latest(folder, contest.progress.say)) is not None:
            state = checkpoint.load(newest, author.policy, updater.optimizer, author.policy.device)
            problems.sampler.load_state_dict(state.sampler)
            updater.updates = state.counters["updates"]
            method.rounds.extend(Round.of(one) for one in state.counters["rounds"])

        def watch(spent: int) -> None:
            contest.progress.advance(f"{name}, executor tokens", min(spent, budget), budget)

        while (done := await method.round(budget, watch)) is not None:
            log.log("round", **done.as_json())
            state = checkpoint.TrainingState(
                len(method.rounds),
                checkpoint.random_states(),
                sampler=problems.sampler.state_dict(),
                counters={"updates": updater.updates, "rounds": [asdict(one) for one in method.rounds]},
            )
            checkpoint.save(folder, author.policy, updater.optimizer, state, config_text=to_yaml(config))
    return {"tokens": method.tokens, "rounds": [one.as_json() for one in method.rounds]}


@dataclass(frozen=True, slots=True)
class Peer:
    """``judged``: it learns by the reward, for which the configured judge is asked."""

    search: Callable[[Contest], Awaitable[Found]]
    judged: bool = False


PEERS: Mapping[str, Peer] = {"aflow": Peer(search_as_aflow), "score_dpo": Peer(learn_by_score_dpo, judged=True)}
