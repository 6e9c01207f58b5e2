"""GEPA (Agrawal et al. 2025, arXiv:2507.19457) on our executor, by the library gepa.

A candidate is a few texts (``--texts``): the source of one workflow for each domain (``domains``) or for all of them
(``all``), or Layer 2's instruction for each domain, before the prompts of AFlow's first workflows (``instructions``).
Each round draws a candidate from the Pareto front over the validation problems and proposes another of its texts; if
that is better on a few training problems, it runs on the validation problems and joins. Proposals are replies of a
model that reflects on problems, answers and verdicts: of the executor, or of a large model, recorded in a file
(``--replies``), since the nano executor cannot write code. Without either they are random edits, selection without
reflection: of the warm-up's workflow generator, as in ``aflow``, or a sentence of its instructions added or left out.

Differences: the search ends when its executor tokens are spent, equal runs are paid for once, and an unscored rollout
ends the search instead of counting as wrong.

    python benchmarks/methods/gepa_search.py --tokens 500000 [--texts all]
        [--replies benchmarks/methods/gepa_replies.json]
"""

import asyncio
import copy
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.rollout import RolloutParts, extract_code
from llm_as_judge.types import Problem, Question, Rollout
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.contract import contract
from llm_as_judge.workflow.lint.check import lint

TRAINING, VALIDATION, MINIBATCH = 120, 60, 9
IDLE = 50  # rounds
INSTRUCTIONS = plain_yaml(Path(recipes.__file__).with_name("recipes.yaml"))["instructions"]  # by domain
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


ASK_INSTRUCTION = """{contract}

The workflows for {domain} problems are given. Below is the instruction that the model gets before each of their
prompts, and what came of some problems. Find out why answers are wrong, and write a better instruction. Reply with the
instruction alone.

Instruction: {text}

{examples}"""


@dataclass(frozen=True)
class Form:
    """What the texts of a candidate are: ``domains``, ``all`` or ``instructions``."""

    kind: str = "domains"

    def name(self, domain: str) -> str:
        """Name the text that problems of ``domain`` depend on."""
        return "all" if self.kind == "all" else domain

    def first(self, domains: Iterable[str]) -> dict[str, str]:
        if self.kind == "all":
            return {"all": for_all(first_round("math"))}
        return {domain: "" if self.kind == "instructions" else first_round(domain) for domain in domains}

    def source(self, candidate: Mapping[str, str], question: Question) -> str:
        """Return the workflow for ``question``."""
        return first_round(question.domain) if self.kind == "instructions" else candidate[self.name(question.domain)]

    def within(self, parts: RolloutParts, candidate: Mapping[str, str]) -> RolloutParts:
        """Return ``parts`` with the candidate's Layer 2, if it has one."""
        if self.kind != "instructions":
            return parts
        runner = copy.copy(parts.runner)
        runner.enhance = lambda operator, domain: candidate[domain]
        return replace(parts, runner=runner)


def for_all(text: str) -> str:
    """Give the workflow ``text`` a signature that suits every domain."""
    return re.sub(r"problem: str(, entry_point: str)?\)", 'problem: str, entry_point: str = "")', text)


@dataclass
class Adapter:
    """What gepa asks for, from its own thread. ``tokens`` are those of the executor so far."""

    parts: RolloutParts
    propose: Propose
    loop: asyncio.AbstractEventLoop
    form: Form = Form()
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
                if self.form.name(rollout.problem.question.domain) == name
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
        form = self.form
        keys = {p.question.id: (candidate[form.name(p.question.domain)], p.question.id) for p in problems}
        new = list({p.question.id: p for p in problems if keys[p.question.id] not in self.known}.values())
        author = Given(lambda question: form.source(candidate, question))
        made = await evaluate(new, author, form.within(self.parts, candidate))
        if any(rollout.verdict.correct is None for group in made for rollout in group.rollouts):
            raise RuntimeError("a rollout is unscored: see the log of the executor, and start again")
        for rollout in (rollout for group in made for rollout in group.rollouts):
            self.known[keys[rollout.problem.question.id]] = rollout
            self.tokens += rollout.tokens
        return [self.known[keys[p.question.id]] for p in problems]


@dataclass
class Replies:
    """Recorded replies for each text, in the order in which they are asked for; none left: the text as it is."""

    recorded: dict[str, list[str]]

    async def __call__(self, name: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
        left = self.recorded.get(name)
        return extract_code(left.pop(0)) if left else text


class Edits:
    """Random edits: of a recipe, or of an instruction's sentences."""

    def __init__(self, form: Form, domains: Sequence[str], operators: Collection[str], rng: Random) -> None:
        self.form, self.rng, self.domains = form, rng, domains
        self._editors = {domain: RandomEditor(domain, operators, rng) for domain in domains}
        self._origins = dict[str, tuple[str, str]]()  # domain and text for it, by text for all

    async def __call__(self, name: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
        if self.form.kind == "instructions":
            sentences, chosen = text.split("\n") if text else [], self.rng.choice(INSTRUCTIONS[name])
            left = [sentence for sentence in sentences if sentence != chosen]
            return "\n".join(left if len(left) < len(sentences) else [*left, chosen])
        if self.form.kind == "domains":
            return await self._edited(name, text)
        domain, origin = self._origins.get(text, ("math", first_round("math")))
        if self.rng.random() < 0.5:  # from another domain's workflows
            domain = self.rng.choice(self.domains)
            origin = first_round(domain)
        edited = await self._edited(domain, origin)
        self._origins[for_all(edited)] = domain, edited
        return for_all(edited)

    async def _edited(self, domain: str, text: str) -> str:
        edit = await self._editors[domain].edit(Node(text, 0.0, 0.0), ())
        return edit.text if edit else text


def prompt(form: Form, rules: str, name: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
    shown = "\n\n".join(json.dumps(example, ensure_ascii=False, default=str) for example in examples)
    ask = ASK_INSTRUCTION if form.kind == "instructions" else ASK
    return ask.format(contract=rules, domain=name, text=text, examples=shown)


async def search(config: Config, budget: int, parts: RolloutParts, propose: Propose, form: Form = Form()) -> Any:
    """Search with gepa for ``budget`` executor tokens; returns what it found, and the adapter."""
    drawn = open_problems(config, measured=False).sampler.sample(4 * (TRAINING + VALIDATION))
    problems = list({problem.question.id: problem for problem in drawn}.values())
    adapter = Adapter(parts, propose, asyncio.get_running_loop(), form)
    log = Log()
    found = await asyncio.to_thread(
        gepa.optimize,
        form.first(dict.fromkeys(p.question.domain for p in problems)),
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


async def run(config: Config, budget: int, limit: int | None, replies: str | None, texts: str | None) -> None:
    problems, form = heldout_problems(config.data, limit), Form(texts or "domains")
    operators = load_operators(config.workflow.operators)
    rules, rng = contract(operators, config.workflow.max_calls), Random(config.training.seed)
    async with open_services(config, judging=False) as services:

        async def reflected(name: str, text: str, examples: Sequence[Mapping[str, Any]]) -> str:
            reply = await services.clients["executor"].chat(prompt(form, rules, name, text, examples))
            return reply.reply.strip() if form.kind == "instructions" else extract_code(reply.reply)

        propose: Propose = reflected
        kind = "replies of the executor"
        if replies:
            propose, kind = (
                Replies(json.loads(Path(replies).read_text(encoding="utf-8"))[form.kind]),
                "recorded replies",
            )
        elif config.executor.provider == "embedded":
            propose, kind = Edits(form, list(config.data.domain_ratios), operators, rng), "random edits"
        found, adapter = await search(config, budget, services.official, propose, form)
        best = found.best_candidate
        author = Given(lambda question: form.source(best, question))
        groups = await evaluate(problems, author, form.within(services.official, best))
    shapes = ", ".join(
        f"{name}: {text if form.kind == 'instructions' else lint(text).shape}" for name, text in best.items()
    )
    print(f"{len(found.candidates)} candidates kept, {len(adapter.known)} runs; {shapes}")
    report(f"GEPA, {form.kind}, {kind}", groups, adapter.tokens)


if __name__ == "__main__":
    own = {"replies": "JSON of replies for each text", "texts": "domains (default), all or instructions"}
    asyncio.run(run(*arguments("GEPA's search for workflows or instructions", **own)))
