"""The mixture: exact quotas over time, no repeats within an epoch, resumable."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data.quota import Quota
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.errors import DataError
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Reference

RATIOS: dict[Domain, float] = {"math": 0.4, "code": 0.3, "qa": 0.3}


def problems(**counts: int) -> dict[Domain, list[Problem]]:
    return {
        domain: [Problem(Question(f"{domain}/{i}", "?", domain), Reference()) for i in range(counts.get(domain, 0))]
        for domain in DOMAINS
    }


def ids(batch: list[Problem]) -> list[str]:
    return [problem.question.id for problem in batch]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 13), min_size=1, max_size=30),
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50)),
)
def test_every_domain_stays_within_one_of_its_share(batches: list[int], parts: tuple[int, int, int]) -> None:
    ratios: dict[Domain, float] = {domain: float(part) for domain, part in zip(DOMAINS, parts, strict=True)}
    sampler = DomainSampler(problems(math=7, code=5, qa=3), ratios)
    drawn: Counter[str] = Counter()
    for size in batches:
        batch = sampler.sample(size)
        assert len(batch) == size
        drawn.update(problem.question.domain for problem in batch)
        for domain, part in zip(DOMAINS, parts, strict=True):
            share = Fraction(part, sum(parts)) * drawn.total()
            assert abs(drawn[domain] - share) < 1


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 10])
def test_ten_slots_are_four_three_three_at_every_batch_size(size: int) -> None:
    sampler = DomainSampler(problems(math=50, code=50, qa=50), RATIOS)
    drawn = [problem.question.domain for _ in range(60 // size) for problem in sampler.sample(size)]
    for start in range(0, 60, 10):
        assert Counter(drawn[start : start + 10]) == {"math": 4, "code": 3, "qa": 3}


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_nothing_repeats_before_its_epoch_ends(size: int, seed: int) -> None:
    sampler = DomainSampler(problems(math=9), {"math": 1.0}, seed)
    drawn = [id_ for _ in range(18) for id_ in ids(sampler.sample(size))]
    for start in range(0, len(drawn) - 8, 9):
        assert len(set(drawn[start : start + 9])) == 9


def test_epochs_and_seeds_differ_in_order() -> None:
    first = ids(DomainSampler(problems(math=30), {"math": 1.0}, 1).sample(60))
    assert first == ids(DomainSampler(problems(math=30), {"math": 1.0}, 1).sample(60))
    assert first[:30] != first[30:]
    assert first != ids(DomainSampler(problems(math=30), {"math": 1.0}, 2).sample(60))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 40), st.integers(1, 7))
def test_a_resumed_sampler_continues_exactly(before: int, size: int) -> None:
    pool = problems(math=5, code=4, qa=3)
    whole, resumed = DomainSampler(pool, RATIOS, 3), DomainSampler(pool, RATIOS, 99)
    for _ in range(before):
        whole.sample(size)
    resumed.load_state_dict(whole.state_dict())
    assert [ids(whole.sample(size)) for _ in range(9)] == [ids(resumed.sample(size)) for _ in range(9)]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_copies_in_a_resampled_file_are_spread_over_the_epoch(unique: int, copies: int, seed: int) -> None:
    pool = problems(math=unique)["math"] * copies
    drawn = ids(DomainSampler({"math": pool}, {"math": 1.0}, seed).sample(len(pool)))
    for start in range(0, len(drawn), unique):
        assert len(set(drawn[start : start + unique])) == unique


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 300))
def test_a_quota_is_what_fractions_say_at_every_slot(weights: list[int], slots: int) -> None:
    quota = Quota({i: weight / 100 for i, weight in enumerate(weights)})
    for slot in range(1, slots + 1):
        quota.next()
        for i, weight in enumerate(weights):
            assert abs(quota.drawn[i] - Fraction(weight, sum(weights)) * slot) < 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 150), st.integers(0, 150))
def test_slots_taken_at_once_are_those_taken_one_by_one(weights: list[int], first: int, second: int) -> None:
    taken, one_by_one = (Quota(dict(enumerate(weights))) for _ in range(2))
    names = [*taken.take(first), *taken.take(second)]
    assert names == [one_by_one.next() for _ in range(first + second)]
    assert taken.drawn == one_by_one.drawn


def test_the_order_of_slots_is_known() -> None:
    """A saved run resumes on it: domains and problems must come as they did when its state was written."""
    drawn = ids(DomainSampler(problems(math=9, code=9, qa=9), RATIOS, 0).sample(12))
    assert drawn == ("math/3 code/0 qa/1 math/7 code/2 qa/3 math/4 code/3 qa/4 math/8 math/5 code/5".split())


def test_state_of_other_problems_is_refused() -> None:
    state = DomainSampler(problems(math=5), {"math": 1.0}).state_dict()
    with pytest.raises(DataError, match="other problems"):
        DomainSampler(problems(math=6), {"math": 1.0}).load_state_dict(state)


def test_a_domain_without_problems_or_a_bad_ratio_is_refused() -> None:
    with pytest.raises(DataError, match=r"no code problems; .*\{math: 0\.57, code: 0, qa: 0\.43\}"):
        DomainSampler(problems(math=5, qa=5), RATIOS)
    DomainSampler(problems(math=5), {"math": 1.0, "code": 0.0})
    for ratios in ({"math": -1.0}, {"math": 0.0}, {"math": float("nan")}):
        with pytest.raises(DataError, match="domain_ratios"):
            DomainSampler(problems(math=5), ratios)  # type: ignore[arg-type]
