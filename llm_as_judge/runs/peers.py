"""The field's other ways on the same problems and executor, each within so many executor tokens; for ``compare``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from llm_as_judge.cache import ResponseCache
from llm_as_judge.config.identity import decisive, digest
from llm_as_judge.config.schema import Config
from llm_as_judge.datasets.catalog import DATASETS
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.peers import aflow
from llm_as_judge.evaluation.records import Record
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.runs.progress import Progress
from llm_as_judge.runs.recording import plan_records, recording
from llm_as_judge.runs.services import Services
from llm_as_judge.types import Domain, Problem, Question
from llm_as_judge.workflow.contract import contract

#: Training problems of a dataset that each workflow of a search is tried on.
VALIDATION = 24


@dataclass(frozen=True, slots=True)
class Found:
    """What a way came to: ``records`` on the problems that are compared on, ``trees`` by dataset."""

    name: str
    records: Sequence[Record]
    trees: Mapping[str, aflow.Tree]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "datasets": {name: tree.as_json() for name, tree in self.trees.items()}}


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
    return Found("AFlow-style search", await _recorded(contest, contest.source, problems, texts), trees)


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


PEERS: Mapping[str, Callable[[Contest], Awaitable[Found]]] = {"aflow": search_as_aflow}
