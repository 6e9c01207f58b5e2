"""The training order: exact quotas over time, no repeats within an epoch, resumable."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=50)
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
            assert abs(drawn[domain] - Fraction(part, sum(parts)) * drawn.total()) < 1


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_nothing_repeats_before_its_epoch_ends_and_copies_are_spread(
    unique: int, copies: int, size: int, seed: int
) -> None:
    pool = problems(math=unique)["math"] * copies
    sampler = DomainSampler({"math": pool}, {"math": 1.0}, seed)
    drawn = [id_ for _ in range(2 * len(pool)) for id_ in ids(sampler.sample(size))]
    for start in range(0, len(drawn) - unique + 1, unique):
        assert len(set(drawn[start : start + unique])) == unique


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(1, 7))
def test_a_resumed_sampler_continues_exactly(before: int, size: int) -> None:
    pool = problems(math=5, code=4, qa=3)
    whole, resumed = DomainSampler(pool, RATIOS, 3), DomainSampler(pool, RATIOS, 99)
    for _ in range(before):
        whole.sample(size)
    resumed.load_state_dict(whole.state_dict())
    assert [ids(whole.sample(size)) for _ in range(9)] == [ids(resumed.sample(size)) for _ in range(9)]


def test_the_order_of_slots_is_known() -> None:
    """Saved runs resume on it."""
    drawn = ids(DomainSampler(problems(math=9, code=9, qa=9), RATIOS, 0).sample(12))
    assert drawn == ("math/3 code/0 qa/1 math/7 code/2 qa/3 math/4 code/3 qa/4 math/8 math/5 code/5".split())


def test_other_problems_and_missing_domains_are_refused() -> None:
    state = DomainSampler(problems(math=5), {"math": 1.0}).state_dict()
    with pytest.raises(DataError, match="other problems"):
        DomainSampler(problems(math=6), {"math": 1.0}).load_state_dict(state)
    with pytest.raises(DataError, match="no code problems; add some"):
        DomainSampler(problems(math=5, qa=5), RATIOS)
    DomainSampler(problems(math=5), {"math": 1.0, "code": 0.0})
