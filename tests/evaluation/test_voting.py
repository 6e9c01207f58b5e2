"""Self-consistency by a plain majority, and the best constant answer of each dataset."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from helpers.rollouts import Bench, problem
from helpers.tables import tables

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.evaluation.evaluate import evaluate
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.evaluation.voting import best_constants, constant_author, self_consistency
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.sandbox.results import CodeResult
from llm_as_judge.types import Exchange, Execution, OperatorCall, Question, Reference
from llm_as_judge.workflow.run import WorkflowRunner
from llm_as_judge.workflow.shapes import SHAPES, workflow

TABLES = tables(__file__)


@dataclass
class Drafting(Bench):
    """Answers in turn what ``said`` has for a question; each draft costs ten tokens."""

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        self.runs.append((source, question.id))
        turn = sum(one == question.id for _, one in self.runs) - 1
        exchange = Exchange("", "", "stop", 7, 3, 0.5, 0.1)
        call = OperatorCall("AnswerGenerate", {}, {}, (exchange,))
        answers = self.answer(source, question).split("|")
        return Execution("finished", answers[turn % len(answers)], (call,), seconds=1.0)


def voters(answers: str) -> tuple[Drafting, RolloutParts]:
    bench = Drafting(lambda source, question: answers)
    return bench, RolloutParts(bench, Judge(OFFICIAL), bench, concurrency=1)


async def test_the_most_frequent_answer_counts_with_the_costs_of_all_drafts(tmp_path: Path) -> None:
    wrong = []
    for dataset, answers, gold, correct in TABLES["votes"]:
        bench, parts = voters(answers)
        domain = "qa" if dataset in ("hotpotqa", "squad2", "mmlu") else "math"
        of = problem(f"{dataset}", domain, dataset, Reference((gold,) if gold else ()))

        def log(drafts: int, name: str = f"{dataset}{len(wrong)}{answers[:3]}") -> Ledger:
            return Ledger(tmp_path / f"{name.replace('/', '')}_{drafts}.jsonl")

        drafts, (group,) = await self_consistency([of], parts, bench.run, 25, log)
        (made,) = group.rollouts
        found = (drafts, made.verdict.correct, made.tokens, made.cost, made.seconds)
        if found != (3, correct, 30, 1.5, 3.0):
            wrong.append((dataset, answers, found))
        if dataset == "own":
            drafts, (group,) = await self_consistency([of], parts, bench.run, 65, log)
            assert (drafts, group.rollouts[0].tokens) == (7, 70), "as many as cost no less"
    assert not wrong


@pytest.mark.parametrize("passing, correct", [(1, True), (2, False), (9, False)])
async def test_code_is_the_first_draft_that_passes_public_tests(tmp_path: Path, passing: int, correct: bool) -> None:
    drafts = [f"```python\ndef f(): return {n}\n```\nfor example\n```\nf() == {n}\n```" for n in range(3)]
    bench, parts = voters("|".join(drafts))

    class Tested:
        async def verdict(self, of: object, answer: str, cut_off: bool = False):  # type: ignore[no-untyped-def]
            return await bench.verdict(problem("c", "code", "", Reference((drafts[1],))), answer)

    async def run_code(source: str, **options: object) -> CodeResult:
        return CodeResult("finished", value=[f"def f(): return {passing}\n" in source, "", ""])

    of = problem("c", "code", "mbpp", Reference(tests="assert f() == 1"))
    of = replace(of, question=replace(of.question, entry_point="f", public_tests=("assert f() > 0",)))

    tested = replace(parts, judge=Tested())
    _, (group,) = await self_consistency([of], tested, run_code, 1, lambda n: Ledger(tmp_path / f"{n}.jsonl"))
    ended = [(rollout.verdict.correct, rollout.execution.answer) for rollout in group.rollouts]
    assert ended == [(correct, drafts[passing if passing < 3 else 0])]


async def test_the_best_constant_of_each_dataset_is_chosen_on_training_problems_and_asks_nobody() -> None:
    none = [problem(f"n{i}", "qa", "squad2", Reference(unanswerable=True)) for i in range(3)]
    some = [problem(f"s{i}", "qa", "squad2", Reference((f"place {i}",))) for i in range(4)]
    sums = [problem(f"g{i}", "math", "gsm8k", Reference((str(i // 2),))) for i in range(5)]
    code = problem("c", "code", "mbpp", Reference(tests="assert f() == 1"))
    code = replace(code, question=replace(code.question, entry_point="f"))

    class Silent:
        async def chat(self, prompt: str, **request: object) -> Exchange:
            raise AssertionError("the executor is asked")

    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        judge = Judge(OFFICIAL, None, sandbox)
        constants = await best_constants([*none, *some, *sums, code], judge)
        assert constants == {"squad2": "", "gsm8k": "0", "mbpp": ""}
        runner = WorkflowRunner(Silent(), sandbox, WorkflowConfig(), EndpointConfig())
        parts = RolloutParts(runner, judge, Bench(lambda *rest: ""))
        problems = [none[0], some[0], sums[0], sums[4], code]
        made = [group.rollouts[0] for group in await evaluate(problems, constant_author(constants), parts)]
    assert [(r.execution.outcome, r.verdict.correct, r.calls) for r in made] == [
        ("finished", right, ()) for right in (True, False, True, False, False)
    ]


async def test_a_runner_at_another_temperature_asks_with_it() -> None:
    asked = []

    class Asked:
        async def chat(self, prompt: str, *, temperature: float | None = None, **request: object) -> Exchange:
            asked.append((temperature, request["seed"]))
            return Exchange(prompt, "<answer>x</answer>", "stop", 1, 1, 0.0, 0.0)

    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        runner = WorkflowRunner(Asked(), sandbox, WorkflowConfig(), EndpointConfig())
        text, question = workflow(SHAPES["answer"], "qa"), Question("q", "?", "qa")
        for one in (runner, runner.at_temperature(0.7)):
            await one.run(text, question, 5)
    assert [temperature for temperature, _ in asked] == [None, 0.7]
