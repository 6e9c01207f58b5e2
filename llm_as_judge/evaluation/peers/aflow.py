"""AFlow's way on our environment (Zhang et al. 2024, arXiv:2410.10762): one workflow for a dataset, found by search.

A tree of whole workflows grows from AFlow's first round. Each round draws one of the best nodes, by a mixture of a
uniform draw and a softmax of their scores; an editor changes its workflow in one thing, knowing what was tried there;
the new workflow runs on the validation problems and becomes a child. The best score wins.

What differs: a search ends when its executor tokens are spent, not after 20 rounds, and nothing is tried twice. Where
the executor can write code it is the editor. The nano executor cannot; for it edits come from the generator of the
warm-up's workflows (``workflow.recipes``), at random and without a look at what failed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from llm_as_judge.evaluation.comparison import FIRST_ROUND
from llm_as_judge.evaluation.metrics import mean, number
from llm_as_judge.evaluation.records import Record
from llm_as_judge.llm.cache import ResponseCache
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Domain
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.shapes import SHAPES, workflow
from llm_as_judge.workflow.structure import shape

#: Nodes that are drawn from, the share of the uniform draw, and the softmax's factor for scores in percent: AFlow's.
_BEST, _UNIFORM, _SHARPNESS = 4, 0.3, 0.2
#: Nodes of a tree, for executors that do not tell their tokens.
_MOST = 200
#: Earlier edits of a workflow that the editor is told of.
_TOLD = 10
_LONGEST = 200  # characters of an edit


@dataclass(frozen=True, slots=True)
class Node:
    """``score``: share right on the validation problems, 0 where nothing could be scored."""

    text: str
    score: float
    tokens: float  # of the executor, a problem
    parent: int | None = None
    edit: str = ""  # of the parent's workflow


@dataclass(frozen=True, slots=True)
class Edit:
    text: str
    what: str
    tokens: int = 0  # of the executor, for the edit itself


class Editor(Protocol):
    """Changes a workflow in one thing; ``children`` are what became of earlier changes. None: it knows no other."""

    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None: ...


@dataclass(frozen=True, slots=True)
class Tree:
    nodes: Sequence[Node]
    tokens: int  # of the executor, for all trials and edits

    @property
    def best(self) -> Node:
        """Of the highest score; of several the cheapest."""
        return max(self.nodes, key=lambda node: (node.score, -node.tokens))

    def as_json(self) -> dict[str, Any]:
        best = self.best
        told = {"workflow": best.text, "shape": shape(best.text), "validation": best.score}
        rounds = [
            {"parent": n.parent, "edit": n.edit, "accuracy": n.score, "executor_tokens": number(n.tokens)}
            for n in self.nodes
        ]
        return {**told, "tokens": self.tokens, "nodes": rounds}


def first_round(domain: Domain) -> str:
    """The workflow that AFlow's search begins with."""
    return workflow(SHAPES[FIRST_ROUND[domain]], domain)


async def grow(
    root: str, editor: Editor, trial: Callable[[str], Awaitable[Sequence[Record]]], budget: int, rng: Random
) -> Tree:
    """``trial`` runs a workflow on the validation problems. Ends before a trial that, by the mean of those so far,
    would take more than ``budget`` executor tokens in all, or where the editor knows no further change; the root is
    always tried.
    """
    nodes: list[Node] = []
    spent, tried = 0, 0
    ended = set[int]()

    async def add(text: str, parent: int | None = None, what: str = "") -> None:
        nonlocal spent, tried
        records = await trial(text)
        score = mean([float(r.correct) for r in records if r.correct is not None])
        nodes.append(
            Node(text, 0.0 if math.isnan(score) else score, mean([float(r.tokens) for r in records]), parent, what)
        )
        spent += sum(record.tokens for record in records)
        tried += 1

    await add(root)
    while budget and tried < _MOST and spent + spent / tried <= budget and len(ended) < len(nodes):
        chosen = _select(nodes, ended, rng)
        edit = await editor.edit(nodes[chosen], [node for node in nodes if node.parent == chosen])
        if edit is None:
            ended.add(chosen)
            continue
        spent += edit.tokens
        await add(edit.text, chosen, edit.what)
    return Tree(nodes, spent)


def _select(nodes: Sequence[Node], ended: Collection[int], rng: Random) -> int:
    """AFlow's soft mixed probability over the best nodes that can still be changed (section 4.2)."""
    left = [i for i in range(len(nodes)) if i not in ended]
    best = sorted(left, key=lambda i: -nodes[i].score)[:_BEST]
    top = nodes[best[0]].score
    weights = [math.exp(_SHARPNESS * 100 * (nodes[i].score - top)) for i in best]
    odds = [_UNIFORM / len(best) + (1 - _UNIFORM) * weight / sum(weights) for weight in weights]
    return rng.choices(best, odds)[0]


@dataclass
class RecipeEditor:
    """Edits at random by the generator of the warm-up's workflows, for executors that cannot write code."""

    domain: Domain
    operators: Collection[str]
    rng: Random
    _recipes: dict[str, recipes.Recipe] = field(default_factory=dict)  # by text
    _tried: set[recipes.Recipe] = field(default_factory=set)

    def __post_init__(self) -> None:
        root = recipes.Recipe("CustomCodeGenerate" if self.domain == "code" else "Custom")
        self._recipes[first_round(self.domain)] = root
        self._tried.add(root)

    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None:
        own = self._recipes[parent.text]
        left = [r for r in recipes.edits(own, self.domain, self.operators) if r not in self._tried]
        if not left:
            return None
        recipe = self.rng.choice(left)
        self._tried.add(recipe)
        text = recipes.write(recipe, self.domain, self.rng, varied=0.0)
        self._recipes[text] = recipe
        return Edit(text, f"{shape(parent.text)} becomes {shape(text)}")


_ASK = """{contract}

Below is a workflow for {domain} problems, which answers {score:.0%} of some problems correctly, and what became of
earlier changes of it. Change it in one thing that should make it answer more of them: an operator added, taken out or
exchanged, an instruction, a loop or a condition. Make none of the earlier changes again. Reply with the whole workflow,
whose first line is a comment that says the change.

```python
{text}
```

{earlier}"""


@dataclass(frozen=True, slots=True)
class ModelEditor:
    """The executor as the editor; ``contract`` tells it what a workflow is and which operators there are. A workflow
    that cannot be run is a child as well, and answers nothing.
    """

    model: ChatModel
    contract: str
    domain: Domain
    cache: ResponseCache  # of its edits, so that a search that was interrupted goes on as it went
    seed: int = 0

    async def edit(self, parent: Node, children: Sequence[Node]) -> Edit | None:
        """Raises ``ProviderError``."""
        known = [f"- {child.edit}: {child.score:.0%}" for child in children[-_TOLD:]]
        earlier = "\n".join(known) or "There were none yet."
        prompt = _ASK.format(
            contract=self.contract, domain=self.domain, score=parent.score, text=parent.text, earlier=earlier
        )
        seed = self.seed + len(children)
        request = {"prompt": prompt, "seed": seed}
        if (kept := self.cache.get(request)) is None:
            reply = await self.model.chat(prompt, seed=seed)
            kept = {"text": reply.text, "tokens": reply.prompt_tokens + reply.completion_tokens}
            self.cache.put(request, kept)
        text = extract_code(kept["text"])
        what = next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), shape(text))
        return Edit(text, what[:_LONGEST], kept["tokens"])
