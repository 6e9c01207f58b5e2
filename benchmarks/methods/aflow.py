"""AFlow (Zhang et al. 2024, arXiv:2410.10762) on our executor: one workflow per dataset, found by tree search.

A tree of workflows grows from AFlow's first round. Each round draws one of the best nodes from a mixture of a uniform
distribution and a softmax of their scores; an editor changes one thing in its workflow; the new workflow runs on the
validation problems and becomes a child. The node with the best score wins.

Differences: a search ends when its executor tokens are spent instead of after 20 rounds, and nothing is tried twice.
The editor is the executor itself; the nano executor cannot write code, so its edits are random ones of the warm-up's
workflow generator.

    python benchmarks/methods/aflow.py --tokens 200000
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from common import arguments, report

from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.comparison import FIRST_ROUND
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.intervals import mean
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Domain, Group, Problem, Question
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.contract import contract
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES, workflow

#: AFlow's values: nodes to draw from, share of the uniform draw, factor of the softmax for scores in percent.
BEST, UNIFORM, SHARPNESS = 4, 0.3, 0.2
VALIDATION = 24  # problems that each workflow is tried on
MOST = 200  # nodes, for executors that report no tokens


@dataclass(frozen=True)
class Node:
    text: str
    score: float  # share of correct answers on the validation problems
    tokens: float  # of the executor, per problem
    parent: int | None = None
    edit: str = ""


@dataclass(frozen=True)
class Edit:
    text: str
    what: str
    tokens: int = 0  # of the executor, for the edit itself


@dataclass(frozen=True)
class Tree:
    nodes: Sequence[Node]
    tokens: int  # of the executor, for all trials and edits

    @property
    def best(self) -> Node:
        return max(self.nodes, key=lambda node: (node.score, -node.tokens))


class Editor(Protocol):
    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None:
        """Make one change of ``parent`` that differs from those that made ``children``; None if there is no other."""


async def grow(
    root: str, editor: Editor, trial: Callable[[str], Awaitable[Sequence[Group]]], budget: int, rng: Random
) -> Tree:
    """Grow the tree until a trial would, at the mean cost so far, exceed ``budget``; the root is always tried."""
    nodes, ended, spent = list[Node](), set[int](), 0

    async def add(text: str, parent: int | None = None, what: str = "") -> int:
        rollouts = [rollout for group in await trial(text) for rollout in group.rollouts]
        score = mean([float(r.verdict.correct) for r in rollouts if r.verdict.correct is not None])
        tokens = sum(rollout.tokens for rollout in rollouts)
        nodes.append(Node(text, 0.0 if math.isnan(score) else score, tokens / max(1, len(rollouts)), parent, what))
        return tokens

    spent += await add(root)
    while budget and len(nodes) < MOST and spent + spent / len(nodes) <= budget and len(ended) < len(nodes):
        chosen = select(nodes, ended, rng)
        edit = await editor.edit(nodes[chosen], [node for node in nodes if node.parent == chosen])
        if edit is None:
            ended.add(chosen)
        else:
            spent += edit.tokens + await add(edit.text, chosen, edit.what)
    return Tree(nodes, spent)


def select(nodes: Sequence[Node], ended: Collection[int], rng: Random) -> int:
    """Select by AFlow's soft mixed probability over the best nodes that can still be changed (section 4.2)."""
    best = sorted((i for i in range(len(nodes)) if i not in ended), key=lambda i: -nodes[i].score)[:BEST]
    weights = [math.exp(SHARPNESS * 100 * (nodes[i].score - nodes[best[0]].score)) for i in best]
    odds = [UNIFORM / len(best) + (1 - UNIFORM) * weight / sum(weights) for weight in weights]
    return rng.choices(best, odds)[0]


def first_round(domain: Domain) -> str:
    return workflow(SHAPES[FIRST_ROUND[domain]], domain)


def edits(recipe: recipes.Recipe, domain: Domain, operators: Collection[str]) -> list[recipes.Recipe]:
    """List all recipes that differ from ``recipe`` in one part: the draft, the way drafts become one, what follows."""

    def parts(one: recipes.Recipe) -> tuple[object, ...]:
        return one.draft, (one.samples, one.ensemble, one.early_end), one.after

    def differences(other: recipes.Recipe) -> int:
        return sum(a != b for a, b in zip(parts(other), parts(recipe), strict=True))

    return [other for other in recipes.recipes(domain, operators) if differences(other) == 1]


@dataclass
class RandomEditor:
    """Random edits by the generator of the warm-up's workflows, for executors that cannot write code."""

    domain: Domain
    operators: Collection[str]
    rng: Random
    _recipes: dict[str, recipes.Recipe] = field(default_factory=dict)  # by text

    def __post_init__(self) -> None:
        self._recipes[first_round(self.domain)] = recipes.Recipe(
            "CustomCodeGenerate" if self.domain == "code" else "Custom"
        )

    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None:
        possible = edits(self._recipes[parent.text], self.domain, self.operators)
        left = [recipe for recipe in possible if recipe not in self._recipes.values()]
        if not left:
            return None
        recipe = self.rng.choice(left)
        text = recipes.write(recipe, self.domain, self.rng, varied=0.0)
        self._recipes[text] = recipe
        return Edit(text, f"{lint(parent.text).shape} becomes {lint(text).shape}")


ASK = """{contract}

Below is a workflow for {domain} problems, which answers {score:.0%} of some problems correctly, and the results of
earlier changes to it. Change one thing that should raise that share: add, remove or replace an operator, an
instruction, a loop or a condition. Do not repeat an earlier change. Reply with the whole workflow; its first line is a
comment that describes the change.

```python
{text}
```

{earlier}"""


@dataclass
class ModelEditor:
    """The executor as the editor. Workflows that cannot run become children that answer nothing."""

    model: ChatModel
    contract: str
    domain: Domain

    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None:
        earlier = "\n".join(f"- {child.edit}: {child.score:.0%}" for child in children[-10:]) or "None yet."
        prompt = ASK.format(
            contract=self.contract, domain=self.domain, score=parent.score, text=parent.text, earlier=earlier
        )
        reply = await self.model.chat(prompt, seed=len(children))
        text = extract_code(reply.reply)
        what = next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), lint(text).shape)
        return Edit(text, what[:200], reply.prompt_tokens + reply.completion_tokens)


def dataset_of(question: Question) -> str:
    return f"{question.dataset} {question.domain}".strip()


async def run(config: Config, budget: int, limit: int | None) -> None:
    problems = heldout_problems(config.data, limit)
    training = open_problems(config, measured=False).sampler.sample(1000)
    operators, rng = load_operators(config.workflow.operators), Random(config.training.seed)
    texts, spent = dict[str, str](), 0
    async with open_services(config, judging=False) as services:
        for name in dict.fromkeys(dataset_of(problem.question) for problem in problems):
            own = [problem for problem in problems if dataset_of(problem.question) == name]
            tried_on = list({p.question.id: p for p in training if dataset_of(p.question) == name}.values())
            domain = own[0].question.domain
            editor: Editor = RandomEditor(domain, operators, rng)
            if config.executor.provider != "embedded":
                rules = contract(operators, config.workflow.max_calls)
                editor = ModelEditor(services.clients["executor"], rules, domain)

            async def trial(text: str, on: Sequence[Problem] = tried_on[:VALIDATION]) -> Sequence[Group]:
                return await evaluate(on, Given(lambda question: text), services.official)

            share = round(budget * len(own) / len(problems)) if tried_on else 0
            tree = await grow(first_round(domain), editor, trial, share, rng)
            texts[name], spent = tree.best.text, spent + tree.tokens
            print(f"{name}: {len(tree.nodes)} workflows tried, {tree.best.score:.0%} with {lint(tree.best.text).shape}")
        author = Given(lambda question: texts[dataset_of(question)])
        groups = await evaluate(problems, author, services.official)
    report("AFlow-style search", groups, spent)


if __name__ == "__main__":
    asyncio.run(run(*arguments("AFlow-style search for one workflow per dataset")))
