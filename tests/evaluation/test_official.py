"""Each dataset's official metric: wired by the dataset, and equal to what its authors' script computes.

``squad2_script`` and ``hotpotqa_script`` say again, from the published descriptions, what those scripts do.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from helpers.rollouts import problem, record_of, rollout

from llm_as_judge.data.catalog import DATASETS, metric_of
from llm_as_judge.data.problems import load_file
from llm_as_judge.evaluation.official import Official
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.types import Outcome, Problem, Reference, Rollout

SAMPLES = Path(__file__).parents[3] / "shared" / "data"


def official(dataset: str, groups: Sequence[Sequence[Rollout]]) -> Official:
    records = [record_of(i, k, r) for i, group in enumerate(groups) for k, r in enumerate(group)]
    (found,) = summarise(records).official.values()
    assert list(summarise(records).official) == [dataset]
    return found


def values(found: Official) -> dict[str, float]:
    return {name: e.value for name, e in found.values.items()}


# What the authors' scripts compute


def normalised(text: str) -> str:
    """Both scripts: lower case, punctuation away, the words a, an and the away, white space made single."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def same(one: str, other: str) -> float:
    return float(normalised(one) == normalised(other))


def overlap(prediction: str, gold: str) -> tuple[int, int, int]:
    ours, theirs = normalised(prediction).split(), normalised(gold).split()
    return sum((Counter(ours) & Counter(theirs)).values()), len(ours), len(theirs)


def harmonic(same: int, ours: int, theirs: int) -> float:
    return 0.0 if not same else 2 * (same / ours) * (same / theirs) / (same / ours + same / theirs)


def squad2_script(predictions: Mapping[str, str], golds: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """For each question the best over its annotators; no annotated answer means that the empty one is right. Where
    either side is empty, F1 is whether both are. Means over all, over those with and those without an answer.
    """

    def scores(said: str, annotated: Sequence[str]) -> tuple[float, float]:
        kept = [a for a in annotated if normalised(a)] or [""]
        exact = max(same(said, a) for a in kept)
        f1 = [harmonic(*overlap(said, a)) if normalised(said) and normalised(a) else same(said, a) for a in kept]
        return exact, max(f1)

    each = {id: scores(predictions[id], annotated) for id, annotated in golds.items()}
    kinds = {"": list(golds), "HasAns_": [i for i in golds if golds[i]], "NoAns_": [i for i in golds if not golds[i]]}
    return {
        f"{kind}{name}": sum(each[i][place] for i in ids) / len(ids)
        for kind, ids in kinds.items()
        for place, name in enumerate(("exact", "f1"))
    }


def hotpotqa_script(predictions: Mapping[str, str], golds: Mapping[str, str]) -> dict[str, float]:
    """One gold; F1 is 0 where yes, no or noanswer stands on one side and something else on the other."""

    def f1(said: str, gold: str) -> float:
        fixed = ("yes", "no", "noanswer")
        if normalised(said) != normalised(gold) and (normalised(said) in fixed or normalised(gold) in fixed):
            return 0.0
        return harmonic(*overlap(said, gold))

    em = [float(normalised(predictions[i]) == normalised(gold)) for i, gold in golds.items()]
    return {"em": sum(em) / len(em), "f1": sum(f1(predictions[i], g) for i, g in golds.items()) / len(golds)}


def made_up(rng: random.Random, golds: Sequence[str], others: Sequence[str]) -> str:
    """An answer as models give them: right, dressed up, shortened, another's, none."""
    gold = rng.choice(golds) if golds else ""
    words = gold.split()
    return rng.choice(
        [
            gold,
            f"The {gold.upper()}!" if gold else "",
            " ".join(words[: max(1, len(words) - 1)]),
            f"{gold} and {rng.choice(others)}",
            rng.choice(others),
            "yes",
            "",
        ]
    )


def sample(file: str) -> list[Problem]:
    path = SAMPLES / file
    if not path.exists():
        pytest.skip(f"{path} is absent: real benchmark samples are not part of the repository")
    return load_file(path)


def test_squad2_is_what_its_script_computes() -> None:
    problems, rng = sample("squad_v2/dev-v2.0.json"), random.Random(0)
    golds = {p.question.id: () if p.reference.unanswerable else p.reference.answers for p in problems}
    others = [a for answers in golds.values() for a in answers if a.lower() not in ("yes", "no")]
    said = {id: made_up(rng, answers, others) for id, answers in golds.items()}
    found = official("squad2", [[rollout(p, True, answer=said[p.question.id])] for p in problems])
    assert found.name == "exact"
    assert values(found) == pytest.approx(squad2_script(said, golds))
    assert 0.1 < found.values["HasAns_exact"].value < 0.9 and 0.1 < found.values["NoAns_exact"].value < 0.9


def test_hotpotqa_is_what_its_script_computes() -> None:
    problems, rng = sample("hotpotqa/hotpot_dev_distractor_v1.json"), random.Random(1)
    golds = {p.question.id: p.reference.answers[0] for p in problems}
    said = {id: made_up(rng, (gold,), list(golds.values())) for id, gold in golds.items()}
    found = official("hotpotqa", [[rollout(p, True, answer=said[p.question.id])] for p in problems])
    assert values(found) == pytest.approx(hotpotqa_script(said, golds))


HAS = problem("has", "qa", "squad2", Reference(answers=("black cat",)))
NONE = problem("none", "qa", "squad2", Reference(unanswerable=True))


def test_scores_by_hand_with_questions_that_have_no_answer_apart() -> None:
    answers = [(HAS, "the cat"), (HAS, "a black cat"), (NONE, ""), (NONE, "Paris"), (NONE, "unanswerable")]
    found = official("squad2", [[rollout(p, True, answer=answer)] for p, answer in answers])
    assert values(found) == pytest.approx(
        {
            "exact": 3 / 5, "f1": (2 / 3 + 1 + 1 + 0 + 1) / 5, "HasAns_exact": 1 / 2, "HasAns_f1": (2 / 3 + 1) / 2,
            "NoAns_exact": 2 / 3, "NoAns_f1": 2 / 3,
        }
    )  # fmt: skip
    assert [found.values[name].n for name in ("exact", "HasAns_f1", "NoAns_f1")] == [5, 2, 3]


def test_a_workflow_that_failed_has_not_said_that_there_is_no_answer() -> None:
    outcomes: tuple[Outcome, ...] = ("invalid", "raised", "timeout", "budget")
    for outcome in outcomes:
        found = official("squad2", [[rollout(NONE, False, outcome=outcome)], [rollout(HAS, False, outcome=outcome)]])
        assert set(values(found).values()) == {0.0}, outcome


def test_infrastructure_faults_are_left_out_and_counted() -> None:
    found = official("squad2", [[rollout(NONE, True, answer="")], [rollout(NONE, None)], [rollout(HAS, None)]])
    exact = found.values["exact"]
    assert (exact.value, exact.n, exact.unscored) == (1.0, 1, 2)
    assert "HasAns_exact" not in found.values, "nothing was measured there"


def test_every_benchmark_is_reported_by_its_own_metric() -> None:
    wrong = []
    for dataset, name in (
        ("gsm8k", "accuracy"), ("math", "accuracy"), ("mmlu", "accuracy"), ("commonsenseqa", "accuracy"),
        ("humaneval", "pass@1"), ("mbpp", "pass@1"), ("squad2", "exact"), ("hotpotqa", "em"),
    ):  # fmt: skip
        of = problem("p", DATASETS[dataset].domain, dataset)
        found = official(dataset, [[rollout(of, True, answer="answer p")], [rollout(of, False, answer="?")]])
        if found.name != name or found.values[name].value != 0.5:
            wrong.append((dataset, found))
    assert not wrong


def test_other_datasets_have_the_metric_of_their_domains() -> None:
    assert (metric_of("mine", ["code"]), metric_of("mine", ["code", "qa"])) == ("pass@k", "accuracy")


def test_pass_at_k_is_unbiased_over_the_samples_of_each_problem() -> None:
    right = [(True, False, False, True), (False, False, False, False), (True, None, False, None)]
    of = problem("p", "code", "humaneval")
    found = official("humaneval", [[rollout(of, c) for c in samples] for samples in right])
    assert found.values["pass@1"].value == pytest.approx((2 / 4 + 0 + 1 / 2) / 3)
    # The third has two scored samples: of four nobody knows.
    assert (found.values["pass@4"].value, found.values["pass@4"].n, found.values["pass@4"].unscored) == (0.5, 2, 1)
    assert list(found.values) == ["pass@1", "pass@4"]


def test_several_samples_are_averaged_by_problem() -> None:
    answers = [("black cat", "dog"), ("cat", "cat")]
    found = official("squad2", [[rollout(HAS, True, answer=a) for a in pair] for pair in answers])
    assert values(found) == pytest.approx(
        {"exact": 1 / 4, "f1": (1 / 2 + 2 / 3) / 2, "HasAns_exact": 1 / 4, "HasAns_f1": (1 / 2 + 2 / 3) / 2}
    )


def test_the_json_names_the_metric_and_has_no_nan() -> None:
    made = official("hotpotqa", [[rollout(problem("p", "qa", "hotpotqa"), None)]]).as_json()
    assert json.loads(json.dumps(made, allow_nan=False))["name"] == "em" and made["em"] is None


def test_shares_right_keep_the_problems_order() -> None:
    records = [record_of(i, 0, rollout(HAS, correct)) for i, correct in enumerate((True, None, False))]
    assert summarise(records).by_problem == (1.0, None, 0.0)
