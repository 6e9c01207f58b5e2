"""The runner: text in, execution out; metered on the host, with our faults apart from the workflow's mistakes."""

import ast
import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from helpers.tables import tables
from helpers.workflows import CODE, DOUBLE, QUESTION, SQUARE
from running import Run, Script, Wait

from llm_as_judge import types
from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import BufferConfig, WorkflowConfig
from llm_as_judge.errors import PromptRefused, ProviderError
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.sandbox.host import BudgetExceeded, Sandbox
from llm_as_judge.workflow.run import Budget, WorkflowRunner
from llm_as_judge.workflow.shapes import SHAPES, workflow

TABLES = tables(__file__)

#: Every named shape, for the code domain if it is about code.
TEXTS = {name: workflow(shape, "code" if name.startswith("code") else "math") for name, shape in SHAPES.items()}


def names(execution: types.Execution) -> list[str]:
    return [call.name for call in execution.calls]


def test_one_call_is_metered_and_each_named_shape_runs(run: Run) -> None:
    llm = Script("<thought>6*7</thought><answer>42</answer>")
    execution = run(TEXTS["answer"], llm=llm)
    assert (execution.outcome, execution.answer, names(execution)) == ("finished", "42", ["AnswerGenerate"])
    (call,) = execution.calls
    (exchange,) = call.exchanges
    assert (exchange.prompt, exchange.reply) == (llm.prompts[0], "<thought>6*7</thought><answer>42</answer>")
    assert (exchange.prompt_tokens, exchange.completion_tokens, exchange.cost) == (10, 5, 0.5)
    assert call.arguments == {"input": QUESTION.text} and call.result["answer"] == "42" and call.parse_ok
    assert (execution.tokens, execution.cost) == (15, 0.5)
    for name, source in TEXTS.items():
        is_code = "entry_point" in source
        if name.endswith("_test") and not name.startswith("code"):
            continue  # tests an answer that is no code
        execution = run(source, CODE if is_code else QUESTION)
        assert execution.outcome == "finished", (name, execution.error)
        assert (SQUARE if is_code else "42") in (execution.answer or ""), name


def test_a_text_is_parsed_once_for_lint_sandbox_log_and_buffer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = ast.parse, list[str]()
    monkeypatch.setattr(ast, "parse", lambda source, *more: parsed.append(source) or parse(source, *more))
    source = f"import workspace.X.workflows.template.operator as operator\n{TEXTS['answer_vote']}"
    problem, execution = types.Problem(QUESTION, types.Reference(("42",))), run(source)
    completion = types.Completion(source, (), (), (), "stop")
    rollout = types.Rollout(problem, completion, source, execution, types.Verdict(True, "rules"), types.Reward(20.0))
    buffer = ExperienceBuffer(BufferConfig(), lambda texts: pytest.fail("nothing to compare"))
    buffer.update([types.Group(problem, (rollout,))], 1)
    (kept,) = buffer.entries("math")
    assert (execution.outcome, kept.digest) == ("finished", execution.digest) and len(kept.digest) == 16
    assert kept.shape == "3xAnswerGenerate>ScEnsemble"
    assert [text for text in parsed if text] == [source]


def test_an_invalid_text_is_not_run_and_incomplete_replies_are_marked(run: Run) -> None:
    llm = Script()
    execution = run(TEXTS["answer"].replace("'answer'", "'anser'"), llm=llm)
    assert execution.outcome == "invalid" and "W207" in execution.error
    assert execution.answer is None and llm.prompts == []
    unused = TEXTS["answer"].replace(
        "        self.answer", "        self.r = operator.Review(self.llm)\n        self.answer"
    )
    execution = run(unused)
    assert (execution.outcome, [f.code for f in execution.findings]) == ("finished", ["W205"])
    execution = run(unused, operators=("AnswerGenerate",))
    assert execution.outcome == "invalid" and "W201" in [f.code for f in execution.findings]
    (call,) = run(TEXTS["direct"], llm=Script("<answer>4", finish_reason="length", seconds=0.1)).calls
    assert (call.exchanges[0].finish_reason, call.exchanges[0].seconds) == ("length", 0.1)
    assert (call.parse_ok, call.error) == (False, "the model's reply was cut off after 5 tokens")
    assert call.result["response"] == "<answer>4", "the incomplete text may still be of use"
    error = PromptRefused("http://127.0.0.1:1: HTTP 400: maximum context length is 8 tokens", "context")
    execution = run(TEXTS["answer"], llm=Script(error=error))
    assert execution.outcome == "raised" and "does not fit the executor's context" in execution.error
    assert "127.0.0.1" not in execution.error
    error = PromptRefused("it reads at most 63; raise executor.context", "context")
    here = EndpointConfig(provider="local", model="policy")
    assert (
        "(it reads at most 63; raise executor.context)"
        in run(TEXTS["answer"], llm=Script(error=error), executor=here).error
    )


CHAINS = TABLES["CHAINS"]


def test_each_request_has_its_own_seed_whatever_the_timing(run: Run) -> None:
    def seeds(seed: int | None, slow: str) -> list[tuple[str, int | None]]:
        asked: list[tuple[str, int | None]] = []

        class Seeded:
            async def chat(self, prompt: str, *, seed: int | None = None, **options: Any) -> types.Exchange:
                asked.append((prompt, seed))
                await asyncio.sleep(0.05 if slow and slow in prompt else 0)
                return types.Exchange(prompt, f"<answer>{prompt[-9:]}</answer>", "stop", 10, 5, 0.5, 0.1)

        execution = run(CHAINS, llm=Seeded(), seed=seed)
        assert (execution.outcome, len(asked)) == ("finished", 6)
        return sorted(asked, key=str)

    first = seeds(5, "left")
    assert len({seed for _, seed in first}) == 6  # equal prompts too
    assert first == seeds(5, "right") != seeds(6, "left")
    assert {seed for _, seed in seeds(None, "")} == {None}


def test_a_call_says_why_it_failed_and_a_provider_that_is_down_is_a_fault_even_if_it_is_caught(run: Run) -> None:
    down = Script(error=ProviderError("http://127.0.0.1:1 does not answer"))
    (call,) = run(TEXTS["answer"], llm=Script("no tags")).calls
    assert (call.error, call.parse_ok) == ("no <answer> in the reply", False)
    asks = "        result = await self.custom(input=problem, instruction='')\n"
    catching = f"        try:\n    {asks}        except BaseException:\n            return 'caught'\n"
    for text in (TEXTS["direct"].replace(asks, catching), TEXTS["direct"]):
        execution = run(text, llm=down)
        assert (execution.outcome, execution.answer, names(execution)) == ("fault", None, ["Custom"])
        (call,) = execution.calls
        assert (call.result, call.parse_ok, call.exchanges) == ({}, False, ())
        assert call.error == "ProviderError: http://127.0.0.1:1 does not answer" and call.error in execution.error


def test_context_layer_two_and_errors_of_code_reach_the_executor(run: Run) -> None:
    llm = Script()
    run(TEXTS["answer"], replace(QUESTION, context="Some facts."), llm, enhance="[{} for {}]".format)
    assert llm.prompts[0].startswith("[AnswerGenerate for math]\n")
    assert "Context: Some facts.\nQuestion: What is 6 times 7?" in llm.prompts[0]
    review = "<feedback>off by one</feedback><review_result>False</review_result>"
    execution = run(TEXTS["answer_review"], llm=Script("<answer>41</answer>", review, "<solution>42</solution>"))
    assert (execution.answer, names(execution)) == ("42", ["AnswerGenerate", "Review", "Revise"])
    llm = Script(DOUBLE, SQUARE)
    execution = run(TEXTS["code_test"], CODE, llm)
    assert (execution.answer, names(execution)) == (SQUARE, ["CustomCodeGenerate", "Test"])
    assert "assert f(3) == 9" in llm.prompts[1] and "got 6" in llm.prompts[1]


class Greedy:
    """A model that takes all it may: a token for each byte of the prompt, and as long a reply as allowed."""

    def __init__(self, tokens: int = 10**9, cost: float = 1e9) -> None:
        self.left, self.money = tokens, cost
        self.limits: list[int | None] = []

    async def chat(self, prompt: str, *, max_tokens: int | None = None, **options: Any) -> types.Exchange:
        self.limits.append(max_tokens)
        sent, back = len(prompt.encode()), max_tokens or 100
        cost = (sent * 2 + back * 8) / 1e6
        self.left, self.money = self.left - sent - back, self.money - cost
        assert self.left >= 0 and self.money >= 0
        await asyncio.sleep(0.01)
        return types.Exchange(
            prompt, "<answer>1</answer><solution_letter>A</solution_letter>", "stop", sent, back, cost, 0.0
        )


def test_calls_and_the_worst_case_of_each_have_a_budget_that_nothing_evades(run: Run) -> None:
    executor = EndpointConfig(max_tokens=100, price_per_million_input=2.0, price_per_million_output=8.0)
    many = TEXTS["answer_vote"].replace("range(3)", "range(20)")
    for bound in (300, 700, 1500, 3000):
        execution = run(many, llm=Greedy(tokens=bound), executor=executor, max_tokens=bound)
        assert execution.outcome == "budget" and execution.tokens <= bound
        assert "no further call fits" in execution.error
    llm = Greedy(cost=0.004)
    execution = run(many, llm=llm, executor=executor, max_cost=0.004)
    assert (execution.outcome, bool(llm.limits)) == ("budget", True) and execution.cost <= 0.004
    execution = run(TEXTS["answer_vote"].replace("range(3)", "range(100)"), max_calls=4)
    assert execution.outcome == "budget" and len(execution.calls) == 4
    source = TEXTS["answer_vote"].replace("ScEnsemble(self.llm)", "MdEnsemble(self.llm, vote_count=10**9)")
    count = itertools.count()
    other = Script(by=lambda prompt: f"<answer>{next(count)}</answer>")  # no ensemble agrees
    execution = run(source.replace("result['response']", "result['solution']"), llm=other, max_calls=4)
    assert execution.outcome == "budget" and "calls of the executor" in execution.error
    assert sum(len(call.exchanges) for call in execution.calls) <= 16


def test_what_a_call_reserved_and_did_not_take_is_released() -> None:
    budget, executor = Budget(WorkflowConfig(max_tokens=1000)), EndpointConfig(max_tokens=800)
    for _ in range(30):
        with budget.call("x" * 100, executor) as call:
            call.tokens = 10
    with pytest.raises(BudgetExceeded, match="300 executor tokens"), budget.call("x" * 700, executor):
        pass
    with pytest.raises(ProviderError), budget.call("x", executor):
        raise ProviderError("down")
    with budget.call("x" * 100, executor) as last:
        assert last.reply_tokens == 1000 - 300 - 164


def test_what_is_kept_of_prompts_and_replies_is_bounded(run: Run) -> None:
    source = TEXTS["answer"].replace("input=problem", "input=problem + 'x' * 500_000")
    (call,) = run(source, llm=Script("<answer>" + "y" * 500_000 + "</answer>")).calls
    (exchange,) = call.exchanges
    assert max(len(exchange.prompt), len(exchange.reply)) <= 50_000
    assert "characters cut" in exchange.prompt and "characters cut" in exchange.reply


def test_wrong_arguments_are_the_workflows_mistake_and_text_takes_any_value(run: Run) -> None:
    execution = run(TEXTS["answer_vote"].replace("solutions=solutions", "solutions=problem"))
    assert execution.outcome == "raised" and "solutions must be a list, got str" in execution.error
    text = "class Workflow:\n    def __init__(self, *a): self.op = operator.ScEnsemble(create_llm_instance(None))\n"
    text += "    async def __call__(self, problem):\n        whole = [dict(answer=problem, error='')] * 2\n"
    execution = run(f"{text}        return (await self.op(solutions=whole, problem=problem))['response']\n")
    assert execution.outcome == "raised" and "solutions must hold texts, got a dict; take ['answer']" in execution.error
    llm = Script("ok")
    assert run(TEXTS["direct"].replace("input=problem", "input={'a': 1}"), llm=llm).answer == "ok"
    assert "{'a': 1}" in llm.prompts[0]


def test_many_runs_at_once_are_metered_apart(wait: Wait, box: Sandbox) -> None:
    async def all_of_them() -> list[types.Execution]:
        llm = Script(by=lambda prompt: f"<answer>{prompt[-3:]}</answer>")
        runner = WorkflowRunner(llm, box, WorkflowConfig(), EndpointConfig())
        runs = [runner.run(TEXTS["answer"], replace(QUESTION, text=f"number {n:03}")) for n in range(30)]
        return list(await asyncio.gather(*runs))

    executions = wait(all_of_them())
    assert [e.answer for e in executions] == [f"{n:03}" for n in range(30)]
    assert {e.tokens for e in executions} == {15}
