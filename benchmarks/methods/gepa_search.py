"""GEPA (Agrawal et al. 2025, arXiv:2507.19457) on our executor: one workflow for each domain, by the library gepa.

A candidate is the source of one workflow for each domain. Each round draws a candidate from the Pareto front over the
validation problems and proposes another workflow for one domain; if that is better on a few training problems, it runs
on the validation problems and joins. Proposals are replies of a model that reflects on problems, answers and verdicts:
of the executor, or of a large model, recorded in a file (``--replies``), since the nano executor cannot write code.
Without either they are random edits of the warm-up's workflow generator, as in ``aflow``: selection without reflection.

Differences: the search ends when its executor tokens are spent, equal runs are paid for once, and an unscored rollout
ends the search instead of counting as wrong.

    python benchmarks/methods/gepa_search.py --tokens 500000 [--replies benchmarks/methods/gepa_replies.json]
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import gepa
from aflow import Node, RandomEditor, first_round
from common import arguments, report
from gepa.core.adapter import EvaluationBatch

from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.rollout import RolloutParts, extract_code
from llm_as_judge.types import Problem, Rollout
from llm_as_judge.workflow.contract import contract
from llm_as_judge.workflow.lint.check import lint

TRAINING, VALIDATION, MINIBATCH = 120, 60, 9
IDLE = 50  # rounds
T = TypeVar("T")
#: Another workflow for a domain, given the present one and the examples that it was tried on.
Propose = Callable[[str, str, Sequence[Mapping[str, Any]]], Awaitable[str]]

ASK = """{contract}

Below is a workflow for {domain} problems, and what it did with some of them. Find out why answers are wrong, and write
a better workflow for all problems of this kind; it may look at the problem's text. Reply with the whole workflow.

```python
{text}
```

{examples}"""


@dataclass
class Adapter:
    """What gepa asks for, from its own thread. ``tokens`` are those of the executor so far."""

    parts: RolloutParts
    propose: Propose
    loop: asyncio.AbstractEventLoop
    tokens: int = 0
    before: int = 0  # at the last look of ``ended``
    idle: int = 0
    known: dict[tuple[str, str], Rollout] = field(default_factory=dict)  # by workflow and problem

    def ended(self, budget: int) -> bool:
        """Tell whether ``budget`` is spent, or nothing new was run in the last rounds."""
        self.idle = self.idle + 1 if self.tokens == self.before else 0
        self.before = self.tokens
        return self.tokens >= budget or self.idle > IDLE

    def evaluate(
        self, batch: list[Problem], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Any, Rollout]:
        rollouts = self._wait(self._rollouts(batch, candidate))
        right = [float(bool(rollout.verdict.correct)) for rollout in rollouts]
        return EvaluationBatch(rollouts, right, rollouts if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Any, Rollout], components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        return {
            name: [
                {
                    "problem": rollout.problem.question.text,
                    "calls": [f"{call.name}: {call.result}" for call in rollout.execution.calls],
                    "answer": rollout.execution.answer, "reference": rollout.problem.reference.shown,
                    "right": rollout.verdict.correct, "error": rollout.execution.error,
                }
                for rollout in eval_batch.trajectories or ()
                if rollout.problem.question.domain == name
            ]
            for name in components_to_update
        }  # fmt: skip

    def propose_new_texts(
        self, candidate: dict[str, str], reflective_dataset: Mapping[str, Any], components_to_update: list[str]
    ) -> dict[str, str]:
        return {
            name: self._wait(self.propose(name, candidate[name], reflective_dataset[name]))
            for name in components_to_update
        }

    def _wait(self, awaitable: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result()

    async def _rollouts(self, problems: Sequence[Problem], candidate: Mapping[str, str]) -> list[Rollout]:
        keys = {p.question.id: (candidate[p.question.domain], p.question.id) for p in problems}
        new = list({p.question.id: p for p in problems if keys[p.question.id] not in self.known}.values())
        made = await evaluate(new, Given(lambda question: candidate[question.domain]), self.parts)
        if any(rollout.verdict.correct is None for group in made for rollout in group.rollouts):
            raise RuntimeError("a rollout is unscored: see the log of the executor, and start again")
        for rollout in (rollout for group in made for rollout in group.rollouts):
            self.known[keys[rollout.problem.question.id]] = rollout
            self.tokens += rollout.tokens
        return [self.known[keys[p.question.id]] for p in problems]


@dataclass
class Replies:
    """Recorded replies for each domain, in the order in which they are asked for; none left: the workflow as it is."""

    recorded: dict[str, list[str]]

    async def __call__(self, domain: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
        left = self.recorded.get(domain)
        return extract_code(left.pop(0)) if left else text


def prompt(rules: str, domain: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
    shown = "\n\n".join(json.dumps(example, ensure_ascii=False, default=str) for example in examples)
    return ASK.format(contract=rules, domain=domain, text=text, examples=shown)


async def search(config: Config, budget: int, parts: RolloutParts, propose: Propose) -> Any:
    """Search with gepa for ``budget`` executor tokens; returns what it found, and the adapter."""
    drawn = open_problems(config, measured=False).sampler.sample(4 * (TRAINING + VALIDATION))
    problems = list({problem.question.id: problem for problem in drawn}.values())
    adapter = Adapter(parts, propose, asyncio.get_running_loop())
    log = Log()
    found = await asyncio.to_thread(
        gepa.optimize,
        {domain: first_round(domain) for domain in dict.fromkeys(p.question.domain for p in problems)},
        problems[VALIDATION : VALIDATION + TRAINING],
        problems[:VALIDATION],
        adapter=adapter,
        reflection_minibatch_size=MINIBATCH,
        skip_perfect_score=False,  # the batch has several domains, of which one is changed
        stop_callbacks=lambda state: adapter.ended(budget) or bool(log.failure),
        logger=log,
        seed=config.training.seed,
    )
    if log.failure:
        raise RuntimeError(log.failure)
    return found, adapter


@dataclass
class Log:
    """Messages of gepa, which logs exceptions and goes on without end; here the first one ends the search."""

    failure: str = ""

    def log(self, message: str) -> None:
        if "Traceback" in message and not self.failure:
            self.failure = message


async def run(config: Config, budget: int, limit: int | None, replies: str | None) -> None:
    problems = heldout_problems(config.data, limit)
    operators = load_operators(config.workflow.operators)
    rules, rng = contract(operators, config.workflow.max_calls), Random(config.training.seed)
    async with open_services(config, judging=False) as services:
        recorded = Replies(json.loads(Path(replies).read_text(encoding="utf-8")) if replies else {})
        editors = {domain: RandomEditor(domain, operators, rng) for domain in config.data.domain_ratios}

        async def edited(domain: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
            edit = await editors[domain].edit(Node(text, 0.0, 0.0), ())
            return edit.text if edit else text

        async def reflected(domain: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
            reply = await services.clients["executor"].chat(prompt(rules, domain, text, examples))
            return extract_code(reply.reply)

        live = config.executor.provider != "embedded"
        propose: Propose = recorded if replies else reflected if live else edited
        found, adapter = await search(config, budget, services.official, propose)
        best = found.best_candidate
        groups = await evaluate(problems, Given(lambda question: best[question.domain]), services.official)
    shapes = ", ".join(f"{domain}: {lint(text).shape}" for domain, text in best.items())
    print(f"{len(found.candidates)} candidates kept, {len(adapter.known)} runs; {shapes}")
    kind = "recorded replies" if replies else "replies of the executor" if live else "random edits"
    report(f"GEPA, {kind}", groups, adapter.tokens)


if __name__ == "__main__":
    asyncio.run(run(*arguments("GEPA's search for one workflow per domain", replies="JSON of replies for each domain")))
