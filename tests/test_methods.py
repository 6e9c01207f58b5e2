"""The methods of ``benchmarks/methods``: the search climbs and keeps to its tokens, the loss is DPO's."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from helpers.finished import EMBEDDED
from helpers.rollouts import alone, problem, rollout
from helpers.update_case import batch, fresh
from torch.nn.functional import logsigmoid

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.evaluation.evaluate import Given
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import Group, Problem, Question
from llm_as_judge.workflow.lint.check import lint

sys.path.append(str(Path(__file__).parents[1] / "benchmarks/methods"))

from aflow import Node, RandomEditor, Tree, first_round, grow, select
from choosers import CHOOSERS
from score_dpo import BETA, Pair, learn, log_probabilities, scaled, score_dpo_loss


def groups(share: float, tokens: int = 10, count: int = 20) -> list[Group]:
    return alone(rollout(problem(f"p{i}", "math"), i < share * count, tokens=tokens) for i in range(count))


async def searched(budget: int, seed: int = 0) -> tuple[Tree, list[str]]:
    """Programs are good, reviewed programs better, and an ensemble of them best, which takes three edits."""
    tried: list[str] = []

    async def trial(text: str) -> Sequence[Group]:
        tried.append(text)
        score = 0.2 + 0.3 * ("Programmer" in text) + 0.2 * ("Review" in text) + 0.2 * ("ScEnsemble" in text)
        return groups(score if "Programmer" in text else 0.2)

    rng = Random(seed)
    return await grow(first_round("math"), RandomEditor("math", OPERATORS, rng), trial, budget, rng), tried


async def test_the_search_climbs_three_edits_and_keeps_to_its_tokens() -> None:
    tree, tried = await searched(200 * 80)
    assert tree.best.score == pytest.approx(0.9)
    assert all(f"operator.{name}(" in tree.best.text for name in ("Programmer", "Review", "ScEnsemble"))
    assert len(set(tried)) == len(tried) > 40, "something was tried twice"
    for budget in (200, 1000, 5000):
        tree, tried = await searched(budget)
        assert tree.tokens == 200 * len(tried) == budget


def test_nodes_are_drawn_by_aflows_mixture() -> None:
    nodes = [Node("a", 0.5, 1), Node("b", 0.4, 1), Node("c", 0.1, 1), Node("d", 0.0, 1), Node("e", 0.0, 1)]
    drawn = Counter(select(nodes, (), Random(seed)) for seed in range(4000))
    # 0.3 / 4 each, and 0.7 by exp(0.2 * points behind the best): 1, e**-2, e**-8, e**-10
    expected = {0: 0.075 + 0.7 * 0.8806, 1: 0.075 + 0.7 * 0.1192, 2: 0.0752, 3: 0.075}
    assert {i: n / 4000 for i, n in drawn.items()} == {i: pytest.approx(p, abs=0.02) for i, p in expected.items()}


def test_the_loss_by_hand_and_what_it_learns() -> None:
    weights = RewardConfig().reward_weights
    assert [scaled(total, weights) for total in (-3.75, 2.875, 9.5, -9, 99)] == pytest.approx([0, 0.5, 1, 0, 1])
    completion = batch(fresh())[0]
    ratios = torch.tensor([[2.0], [-3.0]])
    # 0.1 * (0.9 * 2 - 0.8 * -3) = 0.42; ln(1 + exp(-0.42)) = 0.5050370
    assert float(score_dpo_loss(ratios, [Pair(completion, completion, 0.9, 0.2)])) == pytest.approx(0.5050370, abs=1e-6)
    plain = -logsigmoid(BETA * (ratios[0] - ratios[1])).mean()
    assert float(score_dpo_loss(ratios, [Pair(completion, completion, 1.0, 0.0)])) == pytest.approx(float(plain))
    policy = fresh()
    completions = batch(policy)
    pairs = [Pair(completions[i], completions[i + 1], 1.0, 0.0) for i in (0, 4, 8)]
    with torch.no_grad():
        before = log_probabilities(policy, pairs)
    optimizer = torch.optim.AdamW(policy.trainable_parameters, lr=1e-2)
    first = learn(policy, optimizer, pairs, 3, 1.0)
    assert first == pytest.approx(0.6931, abs=1e-4), "the reference is the policy at the start"
    for _ in range(5):
        learn(policy, optimizer, pairs, 3, 1.0)
    with torch.no_grad():
        after = log_probabilities(policy, pairs) - before
    assert (after[0] > after[1]).all()


def test_choosers_find_what_the_words_tell_and_the_domain_alone_does_not() -> None:
    """Apples want the first workflow, pears the second, and there are more apples."""
    asked = [Question(f"q{i}", f"How many {'pears' if i % 3 == 0 else 'apples'} are {i}?", "math") for i in range(60)]
    pears = torch.tensor([float("pears" in question.text) for question in asked])
    right = torch.stack([1 - pears, pears], dim=1)
    chosen = {name: learn(asked[:30], right[:30])(asked[30:]).argmax(1) for name, learn in CHOOSERS.items()}
    shares = {name: float((choice == pears[30:]).float().mean()) for name, choice in chosen.items()}
    assert shares["best per domain"] == pytest.approx(2 / 3)
    assert shares["nearest neighbours"] >= 0.95 and shares["logistic regression"] >= 0.95, shares


async def test_gepa_keeps_what_is_right_more_often_and_ends_with_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gepa", reason="gepa is not installed: make peers")
    import gepa_search

    async def evaluate(problems: Sequence[Problem], author: Given, parts: object) -> list[Group]:
        return alone(rollout(one, "Programmer" in author.source(one.question), tokens=10) for one in problems)

    async def propose(domain: str, text: str, examples: Sequence[object]) -> str:
        return text.replace("Custom", "Programmer") if domain == "math" else text

    monkeypatch.setattr(gepa_search, "evaluate", evaluate)
    config = load_config(EMBEDDED)
    found, adapter = await gepa_search.search(config, 10_000, None, propose)
    best = found.best_candidate
    assert "Programmer" in best["math"] and "Programmer" not in best["qa"] + best["code"]
    assert adapter.tokens < 10_000, "nothing new is proposed: it ends before its tokens are spent"
    assert len(adapter.known) * 10 == adapter.tokens, "a workflow ran twice on a problem"
    assert (await gepa_search.search(config, 300, None, propose))[1].tokens <= 60 * 10 + 9 * 10

    form = gepa_search.Form("all")
    edits = gepa_search.Edits(form, ["math", "code", "qa"], OPERATORS, Random(0))
    text = (await gepa_search.search(config, 20_000, None, edits, form))[0].best_candidate["all"]
    assert "Programmer" in text and not lint(text).findings and 'entry_point: str = "")' in text

    async def instructed(problems: Sequence[Problem], author: Given, parts: RolloutParts) -> list[Group]:
        told = [parts.runner.enhance("Custom", p.question.domain) for p in problems]
        return alone(rollout(p, bool(text), tokens=10) for p, text in zip(problems, told, strict=True))

    monkeypatch.setattr(gepa_search, "evaluate", instructed)
    form, parts = gepa_search.Form("instructions"), RolloutParts(SimpleNamespace(), None, None)
    edits = gepa_search.Edits(form, ["math", "code", "qa"], OPERATORS, Random(0))
    best = (await gepa_search.search(config, 20_000, parts, edits, form))[0].best_candidate
    assert all(best[domain] for domain in ("math", "code", "qa"))
    monkeypatch.setattr(gepa_search, "evaluate", evaluate)

    async def failing(domain: str, text: str, examples: Sequence[object]) -> str:
        raise OSError("the endpoint is away")

    with pytest.raises(RuntimeError, match="the endpoint is away"):
        await gepa_search.search(config, 10_000, None, failing)
