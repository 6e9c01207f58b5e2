"""The search in AFlow's way: it climbs by single edits, keeps to its tokens and tells what it tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from helpers.rollouts import problem, rollout

from llm_as_judge.evaluation.peers.aflow import Edit, Node, RecipeEditor, Tree, _select, first_round, grow
from llm_as_judge.evaluation.records import Record
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.recipes import Recipe, edits
from llm_as_judge.workflow.structure import shape


def records(share: float, tokens: int = 10, count: int = 20) -> list[Record]:
    made = [rollout(problem(f"p{i}", "math"), i < share * count, tokens=tokens) for i in range(count)]
    return [Record.of(i, 0, one) for i, one in enumerate(made)]


async def searched(budget: int, seed: int = 0) -> tuple[Tree, list[str]]:
    """Programs are good, reviewed programs better, and an ensemble of them best, which takes three edits."""
    tried: list[str] = []

    async def trial(text: str) -> Sequence[Record]:
        tried.append(text)
        score = 0.2 + 0.3 * ("Programmer" in text) + 0.2 * ("Review" in text) + 0.2 * ("ScEnsemble" in text)
        return records(score if "Programmer" in text else 0.2)

    rng = Random(seed)
    return await grow(first_round("math"), RecipeEditor("math", OPERATORS, rng), trial, budget, rng), tried


@pytest.mark.parametrize("seed", range(5))
async def test_it_climbs_to_a_workflow_that_is_three_edits_away(seed: int) -> None:
    tree, tried = await searched(200 * 80, seed)
    assert tree.best.score == pytest.approx(0.9) and {"Programmer", "Review", "ScEnsemble"} <= _called(tree.best.text)
    assert len(set(tried)) == len(tried) > 40, "nothing is tried twice"
    assert all(not [f for f in lint(text, entry_point=None, operators=OPERATORS) if f.fatal] for text in tried)
    depth, node = 0, tree.best
    while node.parent is not None:
        depth, node = depth + 1, tree.nodes[node.parent]
    assert depth >= 3 and node.text == first_round("math")


@pytest.mark.parametrize("budget", [200, 1000, 5000])
async def test_it_keeps_to_its_tokens(budget: int) -> None:
    tree, tried = await searched(budget)
    assert tree.tokens == 200 * len(tried) == budget
    told = tree.as_json()
    assert told["tokens"] == budget and len(told["nodes"]) == len(tried) and told["shape"] == shape(tree.best.text)


async def test_the_tokens_of_an_edit_count_and_the_editor_is_told_what_was_tried() -> None:
    seen: list[int] = []

    class Asked:
        async def edit(self, parent: Node, children: Sequence[Node]) -> Edit:
            seen.append(len(children))
            return Edit("class Workflow: ...", "nothing good", 300)

    async def trial(text: str) -> Sequence[Record]:
        return records(0.5 if text == "root" else 0.0, tokens=10 if text == "root" else 0)

    tree = await grow("root", Asked(), trial, 3000, Random(0))
    assert 2500 < tree.tokens <= 3000 and tree.best.text == "root" and max(seen) >= 2


async def test_without_problems_to_try_them_on_nothing_is_edited() -> None:
    async def trial(text: str) -> Sequence[Record]:
        return []

    tree = await grow("root", RecipeEditor("qa", OPERATORS, Random(0)), trial, 0, Random(0))
    assert [node.text for node in tree.nodes] == ["root"]


def test_nodes_are_drawn_by_aflows_mixture() -> None:
    nodes = [Node("a", 0.5, 1), Node("b", 0.4, 1), Node("c", 0.1, 1), Node("d", 0.0, 1), Node("e", 0.0, 1)]
    drawn = Counter(_select(nodes, (), Random(seed)) for seed in range(4000))
    # 0.3 / 4 each, and 0.7 by exp(0.2 * points behind the best): 1, e**-2, e**-8, e**-10
    expected = {0: 0.075 + 0.7 * 0.8806, 1: 0.075 + 0.7 * 0.1192, 2: 0.0752, 3: 0.075}
    assert {i: n / 4000 for i, n in drawn.items()} == {i: pytest.approx(p, abs=0.02) for i, p in expected.items()}
    assert {_select(nodes, {0, 1, 2, 3}, Random(seed)) for seed in range(20)} == {4}


def test_an_edit_changes_one_thing() -> None:
    made = edits(Recipe("Custom"), "math", OPERATORS)
    assert Recipe("Programmer") in made and Recipe("Custom", 3, "ScEnsemble") in made
    assert Recipe("Custom", after=("Review",)) in made
    assert Recipe("Custom") not in made and Recipe("Programmer", after=("Review",)) not in made
    assert not [
        r for r in edits(Recipe("Custom"), "math", ["Custom", "Format"]) if r != Recipe("Custom", after=("Format",))
    ]


def _called(text: str) -> set[str]:
    return {name for name in OPERATORS if f"operator.{name}(" in text}
