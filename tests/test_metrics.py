"""Metrics against published and hand-computed values."""

import itertools
import math

import pytest

from llm_as_judge.evaluation.metrics import accuracy, bootstrap_interval, paired_difference, pass_at_k, wilson_interval


def test_wilson_matches_published_values() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    for k, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(k, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="k = 3"):
        wilson_interval(3, 2)


def test_unscored_answers_are_left_out_and_counted() -> None:
    estimate = accuracy([True, None, False, True, None])
    assert estimate.value == pytest.approx(2 / 3)
    assert (estimate.n, estimate.unscored) == (3, 2)
    nothing = accuracy([None])
    assert math.isnan(nothing.value) and nothing.unscored == 1


def test_bootstrap_is_seeded_and_covers_the_mean() -> None:
    values = [0.0, 1.0] * 50
    one, two = bootstrap_interval(values, seed=1), bootstrap_interval(values, seed=1)
    assert one == two
    assert one.low == pytest.approx(0.40, abs=0.03) and one.high == pytest.approx(0.60, abs=0.03)
    assert bootstrap_interval([2.0]).low == bootstrap_interval([2.0]).high == 2.0


def test_pairing_makes_the_interval_narrower() -> None:
    base = [float(i % 2) for i in range(100)]
    better = [1.0 if i < 10 else value for i, value in enumerate(base)]
    paired = paired_difference(better, base)
    assert paired.value == pytest.approx(0.05)
    alone = bootstrap_interval(better)
    assert paired.high - paired.low < (alone.high - alone.low) / 2
    assert paired_difference([1, None, 1], [0, 0, None]).n == 1
    assert paired_difference([1, None, 1], [0, 0, None]).unscored == 2
    with pytest.raises(ValueError, match="2 and 1"):
        paired_difference([1, 1], [1])


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    for n, c, k in ((5, 0, 2), (5, 2, 1), (5, 2, 3), (5, 5, 2), (6, 3, 4)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    with pytest.raises(ValueError, match="k = 3"):
        pass_at_k(2, 1, 3)
