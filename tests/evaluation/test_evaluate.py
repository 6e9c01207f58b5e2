"""Evaluation: what is sampled and run, and summaries compared with numbers computed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.rollouts import problem, record_of, rollout

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError, ProviderError
from llm_as_judge.evaluation.evaluate import Given, PolicyAuthor, evaluate
from llm_as_judge.evaluation.metrics import Estimate
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.evaluation.summary import summarise as summarise_records
from llm_as_judge.evaluation.written import look_at
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import Completion, Execution, Problem, Prompt, Question, Reward, Rollout, Verdict
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES, workflow

M1, M2, M3, C1, Q1, Q2 = (problem(n, d) for n, d in zip(
    ("m1", "m2", "m3", "c1", "q1", "q2"), ("math", "math", "math", "code", "qa", "qa"), strict=True
))  # fmt: skip
ROLLOUTS = [
    rollout(M1, True, plan="answer", tokens=100),
    rollout(M2, True, plan="answer", tokens=200),
    rollout(M3, False, plan="program", tokens=300),
    rollout(C1, False, plan="code", tokens=50, outcome="timeout"),
    rollout(Q1, True, plan="answer_vote", tokens=150),
    rollout(Q2, None, plan="answer_vote", tokens=900),  # the provider was down
]


def summarise(rollouts: Sequence[Rollout]) -> Summary:
    return summarise_records([record_of(i, 0, rollout) for i, rollout in enumerate(rollouts)])


def close(estimate: Estimate, value: float, low: float, high: float, n: int, unscored: int = 0) -> bool:
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((value, low, high), abs=5e-5)
    return (estimate.n, estimate.unscored) == (n, unscored)


def test_accuracies_and_wilson_intervals_leave_out_unscored_answers() -> None:
    summary = summarise(ROLLOUTS)
    assert close(summary.overall, 3 / 5, 0.2307, 0.8824, 5, unscored=1)
    assert list(summary.domains) == ["math", "code", "qa"]
    assert close(summary.domains["math"], 2 / 3, 0.2077, 0.9385, 3)
    assert close(summary.domains["code"], 0, 0, 0.7935, 1)
    assert close(summary.domains["qa"], 1, 0.2065, 1, 1, unscored=1)
    assert summary.unscored == {"the provider was down": 1}


def test_validity_and_tokens_leave_out_only_infrastructure_faults() -> None:
    summary = summarise(ROLLOUTS)
    assert close(summary.valid_rate, 4 / 5, 0.3755, 0.9638, 5)
    assert summary.tokens == (100 + 200 + 300 + 50 + 150) / 5


def test_shapes_are_counted_by_domain_the_most_frequent_first() -> None:
    broken = rollout(M1, False, outcome="invalid", text="I would use a calculator.")
    shapes = summarise([broken, *ROLLOUTS]).shapes
    assert shapes["math"] == {"answer": 2, "invalid": 1, "program": 1}
    assert next(iter(shapes["math"])) == "answer"
    assert shapes["code"] == {"code": 1}
    assert shapes["qa"] == {"answer_vote": 2}


def test_new_shapes_are_counted_separately() -> None:
    known = workflow(SHAPES["program"], "math")
    new = known.replace(
        "        return", "        again = await self.programmer(problem=problem, analysis='')\n        return"
    )
    written = [rollout(M1, True, text=new), rollout(M2, True, text=known), rollout(M3, False, text="no workflow")]
    assert list(summarise(written).unseen["math"].values()) == [1]


def test_a_summary_comes_back_from_its_file(tmp_path: Path) -> None:
    for summary in (summarise(ROLLOUTS), summarise([rollout(M1, None)])):
        summary.save(tmp_path / "summary.json")
        assert repr(Summary.load(tmp_path / "summary.json")) == repr(summary)  # NaN, too
    (tmp_path / "summary.json").write_text('{"overall": ')
    with pytest.raises(DataError, match=r"summary\.json holds no evaluation"):
        Summary.load(tmp_path / "summary.json")


def test_the_json_holds_the_same_numbers() -> None:
    data = summarise(ROLLOUTS).as_json()
    assert (data["overall"], data["math"], data["code"], data["qa"]) == (0.6, 2 / 3, 0, 1)
    assert (data["problems"], data["unscored"], data["executor_tokens"]) == (5, 1, 160)
    assert data["interval"]["code"] == [0, pytest.approx(0.7935, abs=5e-5)]
    assert set(data["interval"]) == {"overall", "valid_rate", "math", "code", "qa"}
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert summarise([rollout(M1, None)]).as_json()["overall"] is None, "JSON has no NaN"


class Bench:
    """Runner, judge and reward in one: answers by the problem's id."""

    def __init__(self, *, down: Sequence[str] = ()) -> None:
        self.runs: list[tuple[str, Question]] = []
        self.judged: list[tuple[str, str | None]] = []
        self._down = down

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        assert type(question) is Question, "the reference is the judge's alone"
        self.runs.append((source, question))
        if question.id in self._down:
            raise ProviderError("no reply")
        return Execution("finished", f"answer {question.id}" if "answer" in source else "?")

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        self.judged.append((problem.question.id, answer))
        return Verdict(answer in problem.reference.answers, "rules")

    def __call__(self, *parts: Any) -> Reward:
        return Reward(1.0)

    def parts(self) -> RolloutParts:
        return RolloutParts(self, self, self)


async def test_a_given_workflow_is_run_and_judged_on_every_problem_in_order() -> None:
    bench = Bench()

    def source(question: Question) -> str:
        return f"# {question.id} {'answer' if question.domain == 'math' else 'direct'}"

    rollouts = (await evaluate([M1, Q1, M2], Given(source), bench.parts())).rollouts
    assert [r.problem for r in rollouts] == [M1, Q1, M2]
    assert [r.verdict.correct for r in rollouts] == [True, False, True]
    assert sorted(text for text, _ in bench.runs) == ["# m1 answer", "# m2 answer", "# q1 direct"]
    assert sorted(bench.judged) == [("m1", "answer m1"), ("m2", "answer m2"), ("q1", "?")]


async def test_a_provider_that_is_down_leaves_a_problem_unscored() -> None:
    bench = Bench(down=["m2"])
    rollouts = (await evaluate([M1, M2], Given(lambda question: "answer"), bench.parts())).rollouts
    assert [(r.verdict.correct, r.execution.outcome) for r in rollouts] == [(True, "finished"), (None, "fault")]
    assert [id for id, _ in bench.judged] == ["m1"]
    assert summarise(rollouts).overall == Estimate(1.0, pytest.approx(0.2065, abs=5e-5), 1.0, 1, 1)


class Engine:
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.version: int | None = None

    def generate(self, prompts: Sequence[Sequence[int]], n: int = 1, **options: Any) -> list[list[Completion]]:
        assert self.version == 7, "the engine is brought to the policy's weights first"
        self.calls.append({"prompts": len(prompts), "n": n, **options})
        return [[Completion(f"answer {p[0]}", tuple(p), (1,), (0.0,), "stop")] * n for p in prompts]

    def sync(self, policy: object, version: int) -> None:
        self.version = version


class Policy:
    """Encodes a prompt as the number it is."""

    def encode(self, prompt: Prompt) -> list[int]:
        return [int(prompt.user)]


async def test_prompts_beyond_the_limit_are_named_and_count_as_wrong(caplog: pytest.LogCaptureFixture) -> None:
    engine, bench = Engine(), Bench()
    config = Config.model_validate({"training": {"prompt_max_length": 3}})
    policy = Policy()
    policy.encode = lambda prompt: [4] * int(prompt.user)  # type: ignore[method-assign]
    author = PolicyAuthor(policy, engine, lambda q: Prompt("", q.id), config, 7)  # type: ignore[arg-type]
    problems = [problem(n, "math") for n in ("3", "5", "1", "4")]
    found = [r.completion for r in (await evaluate(problems, author, bench.parts(), samples=2)).rollouts]
    assert engine.calls[0]["prompts"] == 2 and [len(c.prompt_ids) for c in found] == [3, 3, 0, 0, 1, 1, 0, 0]
    assert found[2].text == "# not written: the prompt has 5 tokens, training.prompt_max_length=3" == found[3].text
    assert any(finding.fatal for finding in lint(found[2].text)), "scored as an invalid workflow"
    (warning,) = caplog.messages
    assert "for 2 of 4 problems, and they count as wrong" in warning and warning.endswith(
        ": 5 (5 tokens), 4 (4 tokens)"
    )
    assert [len(group) for group in author.write([p.question for p in problems], any_length=True)] == [1] * 4
    written = look_at(author, [p.question for p in problems], samples=2)
    assert engine.calls[-1]["prompts"] == 2 and written.workflows == 8
    assert written.findings["the prompt exceeds training.prompt_max_length=3"] == 4 < sum(written.findings.values())


async def test_a_policy_writes_one_workflow_for_each_problem() -> None:
    problems = [problem(str(i), "math") for i in range(70)]
    engine, bench, seen = Engine(), Bench(), []
    config = Config.model_validate(
        {"generation": {"eval_temperature": 0.7}, "training": {"response_max_length": 40, "seed": 5}}
    )
    author = PolicyAuthor(Policy(), engine, lambda q: Prompt("", q.id), config, 7)  # type: ignore[arg-type]
    evaluation = await evaluate(problems, author, bench.parts(), seen.append)
    assert [r.completion.prompt_ids for r in evaluation.rollouts] == [(i,) for i in range(70)]
    assert sorted(source for source, _ in bench.runs) == sorted(f"answer {i}" for i in range(70))
    assert [c["prompts"] for c in engine.calls] == [64, 6] and seen == list(range(1, 71))
    assert all((c["temperature"], c["max_new_tokens"]) == (0.7, 40) for c in engine.calls)
    assert len({c["seed"] for c in engine.calls}) == 2, "two calls must not draw the same numbers"
    assert evaluation.summary.overall.value == 1.0
