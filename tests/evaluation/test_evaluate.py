"""Evaluation: what is sampled and run; summaries, intervals and official metrics against numbers computed by hand."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from helpers.rollouts import Bench, alone, problem, rollout

from llm_as_judge.answers import metrics
from llm_as_judge.config.schema import Config
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.evaluation import intervals
from llm_as_judge.evaluation.evaluate import Given, PolicyAuthor, evaluate
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.evaluation.written import look_at
from llm_as_judge.files import json_text
from llm_as_judge.judging.calibration import agreement
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.types import Completion, Group, Outcome, Problem, Prompt, Question, Reference, Rollout, Verdict

M1, M2, M3, C1, Q1, Q2 = (problem(n, d) for n, d in zip(
    ("m1", "m2", "m3", "c1", "q1", "q2"), ("math", "math", "math", "code", "qa", "qa"), strict=True
))  # fmt: skip
ROLLOUTS = [
    rollout(M1, True, shape="answer", tokens=100),
    rollout(M2, True, shape="answer", tokens=200),
    rollout(M3, False, shape="program", tokens=300),
    rollout(C1, False, shape="code", tokens=50, outcome="timeout"),
    rollout(Q1, True, shape="answer_vote", tokens=150),
    rollout(Q2, None, shape="answer_vote", tokens=900),  # the provider was down
]


def test_accuracies_shapes_and_costs_leave_out_infrastructure_faults_also_in_the_results() -> None:
    invalid = rollout(M1, False, outcome="invalid", text="I would use a calculator.")
    summary = summarise(alone([*ROLLOUTS, invalid]))
    found = {"overall": summary.overall, "valid": summary.valid_rate, **summary.domains}
    rounded = {n: (*(round(x, 3) for x in (e.value, e.low, e.high)), e.n, e.unscored) for n, e in found.items()}
    assert rounded == {
        "overall": (0.5, 0.188, 0.812, 6, 1), "valid": (0.667, 0.3, 0.903, 6, 0), "math": (0.5, 0.15, 0.85, 4, 0),
        "code": (0, 0, 0.793, 1, 0), "qa": (1, 0.207, 1, 1, 1),
    }  # fmt: skip
    assert summary.unscored == {"the provider was down": 1}
    assert summary.tokens == (100 + 200 + 300 + 50 + 150 + 10) / 6
    assert list(summary.shapes["math"].items()) == [("answer", 2), ("program", 1), ("invalid", 1)]
    data = summarise(alone(ROLLOUTS)).as_json()
    assert (data["overall"], data["math"], data["code"], data["qa"]) == (0.6, 2 / 3, 0, 1)
    assert (data["problems"], data["unscored"], data["executor_tokens"]) == (5, 1, 160)
    assert set(data["interval"]) == {"overall", "valid_rate", "math", "code", "qa"}
    assert json.loads(json_text(data)) == data
    data = summarise(alone([rollout(M1, None)])).as_json()
    assert '"overall":null' in json_text(data).replace(" ", ""), "JSON has no NaN"


def named(source: str, question: Question) -> str:
    return f"answer {question.id}" if "answer" in source else "?"


async def test_a_given_workflow_is_run_and_judged_in_order_and_faults_are_unscored() -> None:
    bench = Bench(named, down=["m3"])

    def source(question: Question) -> str:
        return f"# {question.id} {'answer' if question.domain == 'math' else 'direct'}"

    groups = await evaluate([M1, Q1, M2, M3], Given(source), bench.parts())
    found = [(group.problem.question.id, rollout) for group in groups for rollout in group.rollouts]
    assert [(id, r.verdict.correct, r.execution.outcome) for id, r in found] == [
        ("m1", True, "finished"), ("q1", False, "finished"), ("m2", True, "finished"), ("m3", None, "fault"),
    ]  # fmt: skip
    assert sorted(bench.runs) == [
        ("# m1 answer", "m1"), ("# m2 answer", "m2"), ("# m3 answer", "m3"), ("# q1 direct", "q1"),
    ]  # fmt: skip
    overall = summarise(groups).overall
    assert (overall.n, overall.unscored) == (3, 1)


class Engine:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.version: int | None = None

    def generate(self, prompts: Sequence[Sequence[int]], n: int = 1, **options: Any) -> list[list[Completion]]:
        assert self.version == 7, "the engine is brought to the policy's weights first"
        self.calls.append({"prompts": len(prompts), **options})
        return [[Completion(f"answer {p[0]}", tuple(p), (1,), (0.0,), "stop")] * n for p in prompts]

    def sync(self, policy: object, version: int) -> None:
        self.version = version


class Policy:
    """Encodes a prompt as as many tokens as its first number says, each of them its last number."""

    def encode(self, prompt: Prompt) -> list[int]:
        count, token = prompt.user.split()
        return [int(token)] * int(count)


def author(engine: Engine, **sections: Any) -> PolicyAuthor:
    config = Config.model_validate(sections)
    return PolicyAuthor(Policy(), engine, lambda q: Prompt("", q.id), config, 7)  # type: ignore[arg-type]


async def test_prompts_beyond_the_limit_are_named_and_count_as_wrong(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    writer = author(engine, training={"prompt_max_length": 3})
    problems = [problem(f"{n} 4", "math") for n in (3, 5, 1, 4)]
    found = await evaluate(problems, writer, Bench(named).parts(), samples=2)
    assert engine.calls[0]["prompts"] == 2
    texts = [rollout.completion.text for rollout in found[1].rollouts]
    assert texts == ["# not written: the prompt has 5 tokens, training.prompt_max_length=3"] * 2
    (warning,) = caplog.messages
    assert "for 2 of 4 problems, and they count as wrong" in warning and "5 4 (5 tokens), 4 4 (4 tokens)" in warning
    written = look_at(writer, [p.question for p in problems], samples=2)
    assert engine.calls[-1]["prompts"] == 2 and written.workflows == 8
    assert written.findings["the prompt exceeds training.prompt_max_length=3"] == 4 < sum(written.findings.values())


async def test_a_policy_writes_one_workflow_for_each_problem() -> None:
    problems, engine, bench, seen = [problem(f"1 {i}", "math") for i in range(70)], Engine(), Bench(named), []
    writer = author(engine, generation={"eval_temperature": 0.7}, training={"response_max_length": 40, "seed": 5})
    groups = await evaluate(problems, writer, bench.parts(), lambda *done: seen.append(done))
    assert [group.problem for group in groups] == problems
    assert sorted(bench.runs) == sorted((f"answer {i}", f"1 {i}") for i in range(70))
    assert [c["prompts"] for c in engine.calls] == [64, 6] and seen == [(done, 70) for done in range(1, 71)]
    assert all((c["sampling"], c["max_new_tokens"]) == (Sampling(0.7), 40) for c in engine.calls)
    assert len({c["seed"] for c in engine.calls}) == 2, "two calls must not draw the same numbers"


async def test_the_judge_alone_is_compared_with_the_rules() -> None:
    class Judge:
        async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
            return Verdict({"m1": True, "m2": False, "q1": None}[problem.question.id], "llm")

    result = await agreement(Judge(), alone(rollout(p, True) for p in (M1, M2, Q1)))
    assert (result.pairs, result.agreement, result.false_rejects, result.abstained) == (3, 0.5, 1, 1)


def test_intervals_match_published_values_and_are_seeded() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    for k, n, low, high in [
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
    ]:  # fmt: skip
        assert intervals.wilson_interval(k, n) == pytest.approx((low, high), abs=5e-5)
    assert intervals.wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="k = 3"):
        intervals.wilson_interval(3, 2)
    one, two = (intervals.bootstrap_interval([0.0, 1.0] * 50) for _ in range(2))
    assert one == two
    assert one.low == pytest.approx(0.40, abs=0.03) and one.high == pytest.approx(0.60, abs=0.03)
    alike = intervals.estimate([0.5]), intervals.bootstrap_interval([1.0] * 9)  # the second as Wilson's 9 of 9
    assert [e.low for e in alike] == pytest.approx([0.1033, 0.7009], abs=5e-5), "equal values are not certain"


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
