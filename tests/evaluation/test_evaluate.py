"""Evaluation: what is sampled and run, and summaries compared with numbers computed by hand."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.rollouts import Bench, alone, problem, rollout

from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import Given, PolicyAuthor, evaluate
from llm_as_judge.evaluation.summary import summarise
from llm_as_judge.evaluation.written import look_at
from llm_as_judge.files import json_text
from llm_as_judge.judging.calibration import agreement
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.types import Completion, Problem, Prompt, Question, Verdict

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
