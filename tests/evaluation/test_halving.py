"""Successive halving finds the best workflow within its tokens and gives the remaining ones ever more problems."""

import itertools
from collections.abc import Sequence

from helpers.rollouts import problem, record_of, rollout
from msgspec.structs import replace

from llm_as_judge.evaluation.halving import Search, successive_halving
from llm_as_judge.events import RolloutEvent

#: Correct answers out of ten problems, and tokens per problem.
RIGHT = {"a": 2, "b": 9, "c": 5, "d": 4, "e": 8, "f": 1, "g": 3, "h": 0}
TOKENS = {name: 50 if name == "e" else 10 for name in RIGHT}
PLACES = (3, 8, 1, 6, 0, 9, 4, 2, 7, 5)  # in which problems first
RECORD = record_of(0, 0, rollout(problem("p", "math"), True))


async def searched(budget: int, problems: int = 1000, names: str = "abcdefgh", unscored: str = "") -> Search:
    async def trial(name: str, count: int) -> Sequence[RolloutEvent]:
        right = [None if name == unscored else PLACES[i % 10] < RIGHT[name] for i in range(count)]
        return [replace(RECORD, index=i, correct=r, executor_tokens=TOKENS[name]) for i, r in enumerate(right)]

    return await successive_halving(list(names), trial, budget, problems)


async def test_the_best_wins_within_the_tokens_and_each_round_keeps_the_better_half() -> None:
    search = await searched(12_000)
    assert (search.winner, [len(one.kept) for one in search.rounds]) == ("b", [4, 2, 1])
    assert set(search.rounds[0].kept) == {"b", "c", "d", "e"} and set(search.rounds[1].kept) == {"b", "e"}
    assert all(second.problems > 1.5 * first.problems for first, second in itertools.pairwise(search.rounds))
    for budget in (3000, 12_000):
        search = await searched(budget, problems=10**6)
        assert budget - 200 < search.tokens <= budget
        spent = [b - a for a, b in itertools.pairwise([0, *(one.tokens for one in search.rounds)])]
        assert max(spent) - min(spent) < 250, "each round has an even share"


async def test_it_ends_where_the_problems_do_and_one_candidate_needs_no_search() -> None:
    search = await searched(10**9, problems=20)
    assert (search.winner, search.rounds[-1].problems) == ("b", 20) and search.tokens < 10**5
    assert (await searched(100, names="a")).as_json() == {"winner": "a", "budget": 100, "tokens": 0, "rounds": []}
    assert (await searched(2000, names="ba", unscored="b")).winner == "a", "an unscored candidate does not win"
