"""Successive halving finds the best workflow within its tokens and gives the remaining ones ever more problems."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from helpers.rollouts import problem, record_of, rollout

from llm_as_judge.evaluation.halving import Search, successive_halving
from llm_as_judge.events import RolloutEvent

#: Correct answers out of ten problems, and tokens per problem.
RIGHT = {"a": 2, "b": 9, "c": 5, "d": 4, "e": 8, "f": 1, "g": 3, "h": 0}
TOKENS = {name: 50 if name == "e" else 10 for name in RIGHT}
PLACES = (3, 8, 1, 6, 0, 9, 4, 2, 7, 5)  # in which problems first


async def searched(
    budget: int, problems: int = 1000, right: Mapping[str, int] = RIGHT, ran: Counter[str] | None = None
) -> Search:
    counted: Counter[str] = Counter() if ran is None else ran

    async def trial(name: str, count: int) -> Sequence[RolloutEvent]:
        counted[name] = count
        return [record(name, i, PLACES[i % 10] < right[name]) for i in range(count)]

    return await successive_halving(list(right), trial, budget, problems)


def record(name: str, index: int, correct: bool | None) -> RolloutEvent:
    return record_of(index, 0, rollout(problem(f"p{index}", "math"), correct, tokens=TOKENS[name]))


async def test_the_best_wins_and_each_round_keeps_the_better_half_on_further_problems() -> None:
    ran: Counter[str] = Counter()
    search = await searched(12_000, ran=ran)
    assert search.winner == "b"
    assert [len(one.kept) for one in search.rounds] == [4, 2, 1]
    assert set(search.rounds[0].kept) == {"b", "c", "d", "e"} and set(search.rounds[1].kept) == {"b", "e"}
    assert search.rounds[0].accuracy.keys() == RIGHT.keys() and search.rounds[-1].accuracy["b"] == pytest.approx(
        0.9, abs=0.05
    )
    assert all(second.problems > 1.5 * first.problems for first, second in itertools.pairwise(search.rounds))
    assert ran["h"] == search.rounds[0].problems and ran["b"] == search.rounds[-1].problems


@pytest.mark.parametrize("budget", [3000, 12_000])
async def test_the_tokens_are_those_given(budget: int) -> None:
    search = await searched(budget, problems=10**6)
    assert budget - 200 < search.tokens <= budget and search.budget == budget
    spent = [0, *(one.tokens for one in search.rounds)]
    thirds = [b - a for a, b in itertools.pairwise(spent)]
    assert max(thirds) - min(thirds) < 250, "each round has an even share"


async def test_it_ends_where_the_problems_do_and_one_candidate_needs_no_search() -> None:
    search = await searched(10**9, problems=20)
    assert (search.winner, search.rounds[-1].problems) == ("b", 20) and search.tokens < 10**5
    assert (await searched(100, right={"a": 2})).as_json() == {"winner": "a", "budget": 100, "tokens": 0, "rounds": []}


async def test_an_unscored_candidate_does_not_win() -> None:
    async def trial(name: str, count: int) -> Sequence[RolloutEvent]:
        return [record(name, i, None if name == "b" else i % 10 == 0) for i in range(count)]

    search = await successive_halving(["b", "a"], trial, 2000, 100)
    assert search.winner == "a" and search.as_json()["rounds"][0]["accuracy"]["b"] is None
