"""Metrics against published and hand-computed values, and each dataset's official one."""

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
from helpers.rollouts import problem, rollout

from llm_as_judge.answers import metrics
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.evaluation import intervals
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.types import Group, Outcome, Reference, Rollout


def test_intervals_match_published_values_and_are_seeded() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    for k, n, low, high in [
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
    ]:  # fmt: skip
        assert intervals.wilson_interval(k, n) == pytest.approx((low, high), abs=5e-5)
    assert intervals.wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="k = 3"):
        intervals.wilson_interval(3, 2)
    values = [0.0, 1.0] * 50
    one, two = intervals.bootstrap_interval(values, seed=1), intervals.bootstrap_interval(values, seed=1)
    assert one == two
    assert one.low == pytest.approx(0.40, abs=0.03) and one.high == pytest.approx(0.60, abs=0.03)
    assert intervals.bootstrap_interval([2.0]).low == intervals.bootstrap_interval([2.0]).high == 2.0


def test_unscored_answers_are_left_out_and_pairing_narrows_the_interval() -> None:
    estimate = intervals.accuracy([True, None, False, True, None])
    assert estimate.value == pytest.approx(2 / 3)
    assert (estimate.n, estimate.unscored) == (3, 2)
    nothing = intervals.accuracy([None])
    assert math.isnan(nothing.value) and nothing.unscored == 1
    base = [float(i % 2) for i in range(100)]
    better = [1.0 if i < 10 else value for i, value in enumerate(base)]
    paired = intervals.paired_difference(better, base)
    assert paired.value == pytest.approx(0.05)
    alone = intervals.bootstrap_interval(better)
    assert paired.high - paired.low < (alone.high - alone.low) / 2
    assert intervals.paired_difference([1, None, 1], [0, 0, None]).n == 1
    assert intervals.paired_difference([1, None, 1], [0, 0, None]).unscored == 2
    with pytest.raises(ValueError, match="2 and 1"):
        intervals.paired_difference([1, 1], [1])


def test_pass_at_k_is_the_mean_over_all_subsets_of_each_problems_samples() -> None:
    for n, c, k in ((5, 0, 2), (5, 2, 1), (5, 2, 3), (5, 5, 2), (6, 3, 4)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert intervals.pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    with pytest.raises(ValueError, match="k = 3"):
        intervals.pass_at_k(2, 1, 3)
    right = [(True, False, False, True), (False, False, False, False), (True, None, False, None)]
    of = problem("p", "code", "humaneval")
    found = official("humaneval", *([rollout(of, c) for c in samples] for samples in right))
    assert found["pass@1"].value == pytest.approx((2 / 4 + 0 + 1 / 2) / 3)
    # The third has only two scored samples, so pass@4 is unknown.
    assert (found["pass@4"].value, found["pass@4"].n, found["pass@4"].unscored) == (0.5, 2, 1)


HAS = problem("has", "qa", "squad2", Reference(answers=("black cat",)))
NONE = problem("none", "qa", "squad2", Reference(unanswerable=True))


def official(dataset: str, *groups: Sequence[Rollout]) -> Mapping[str, intervals.Estimate]:
    return summarise([Group(rollouts[0].problem, rollouts) for rollouts in groups]).official[dataset]


def values(found: Mapping[str, intervals.Estimate]) -> dict[str, float]:
    return {name: e.value for name, e in found.items()}


def test_qa_scores_by_hand_with_questions_that_have_no_answer_apart() -> None:
    answers = [(HAS, "the cat"), (HAS, "a black cat"), (NONE, ""), (NONE, "Paris"), (NONE, "unanswerable")]
    found = official("squad2", *([rollout(p, True, answer=answer)] for p, answer in answers))
    assert values(found) == pytest.approx(
        {
            "exact": 3 / 5, "f1": (2 / 3 + 1 + 1 + 0 + 1) / 5, "HasAns_exact": 1 / 2, "HasAns_f1": (2 / 3 + 1) / 2,
            "NoAns_exact": 2 / 3, "NoAns_f1": 2 / 3,
        }
    )  # fmt: skip
    assert [found[name].n for name in ("exact", "HasAns_f1", "NoAns_f1")] == [5, 2, 3]
    pairs = [("a black cat", "The cat!"), ("yes", "yes it is"), ("no", "no")]  # yes and no are all or nothing
    of = [(problem(gold, "qa", "hotpotqa", Reference((gold,))), answer) for gold, answer in pairs]
    found = official("hotpotqa", *([rollout(p, True, answer=answer)] for p, answer in of))
    assert values(found) == pytest.approx({"em": 1 / 3, "f1": (2 / 3 + 0 + 1) / 3})


def test_a_failed_workflow_counts_zero_and_an_infrastructure_fault_not_at_all() -> None:
    outcomes: tuple[Outcome, ...] = ("invalid", "raised", "timeout", "budget")
    for outcome in outcomes:
        found = official("squad2", [rollout(NONE, False, outcome=outcome)], [rollout(HAS, False, outcome=outcome)])
        assert set(values(found).values()) == {0.0}, outcome
    found = official("squad2", [rollout(NONE, True, answer="")], [rollout(NONE, None)], [rollout(HAS, None)])
    exact = found["exact"]
    assert (exact.value, exact.n, exact.unscored) == (1.0, 1, 2)
    assert "HasAns_exact" not in found, "nothing was measured there"


def test_every_benchmark_is_reported_by_its_own_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    monkeypatch.setattr(metrics, "verified", lambda answer, golds: answer == golds[0])
    for dataset, name, gold in (
        ("gsm8k", "flexible-extract", "12"), ("math", "math_verify", "12"), ("mmlu", "accuracy", "C"),
        ("commonsenseqa", "accuracy", "E"), ("humaneval", "pass@1", "f"), ("mbpp", "pass@1", "f"),
        ("squad2", "exact", "Paris"), ("hotpotqa", "em", "Paris"), ("own", "accuracy by rules", "12"),
    ):  # fmt: skip
        domain = DATASETS[dataset].domain if dataset in DATASETS else "math"
        for there in (True, False):
            monkeypatch.setattr(metrics, "verifies_math", lambda there=there: there)
            of = problem("p", domain, dataset, Reference((gold,)))
            found = official(dataset, [rollout(of, True, answer=gold)], [rollout(of, False, answer="?")])
            expected = "accuracy by rules" if dataset == "math" and not there else name
            if next(iter(found)) != expected or found[expected].value != 0.5:
                wrong.append((dataset, found))
    assert not wrong
