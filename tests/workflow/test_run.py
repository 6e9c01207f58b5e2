"""The runner: text in, execution out; metered on the host, faults kept apart from mistakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.config.schema import EndpointConfig, SandboxConfig, WorkflowConfig
from llm_as_judge.errors import PromptTooLong, ProviderError
from llm_as_judge.llm.client import LLMReply
from llm_as_judge.operators.base import no_enhancement
from llm_as_judge.sandbox.host import BudgetExceeded, Sandbox
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.budget import Ledger
from llm_as_judge.workflow.catalogue import PLANS, workflow
from llm_as_judge.workflow.run import WorkflowRunner

QUESTION = Question("q1", "What is 6 times 7?", "math")
CODE = Question(
    "q2", "Square a number.", "code", entry_point="f", public_tests=("assert f(2) == 4", "assert f(3) == 9")
)
#: Every plan, for code where it is about code.
TEXTS = {name: workflow(plan, "code" if name.startswith("code") else "math") for name, plan in PLANS.items()}
DOUBLE, SQUARE = "def f(x):\n    return x + x", "def f(x):\n    return x * x"


class Script:
    """A chat model that answers by a function of the prompt, or with one text, and keeps the prompts."""

    def __init__(self, reply: str | Callable[[str], str]) -> None:
        self.reply = reply
        self.prompts: list[str] = []

    async def chat(self, prompt: str, **options: Any) -> LLMReply:
        self.prompts.append(prompt)
        text = self.reply if isinstance(self.reply, str) else self.reply(prompt)
        return LLMReply(text, "", "stop", 10, 5, 0.5, 0.0)


class Down:
    async def chat(self, prompt: str, **options: Any) -> LLMReply:
        raise ProviderError("http://127.0.0.1:1 does not answer")


loop: asyncio.AbstractEventLoop
box: Sandbox


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """One sandbox on one loop for the whole file."""
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(SandboxConfig())
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


def run(
    source: str,
    llm: Any,
    question: Question = QUESTION,
    executor: EndpointConfig | None = None,
    enhance: Any = no_enhancement,
    **settings: Any,
) -> Execution:
    runner = WorkflowRunner(llm, box, WorkflowConfig(**settings), executor or EndpointConfig(), enhance)
    return loop.run_until_complete(runner.run(source, question))


def names(execution: Execution) -> list[str]:
    return [call.name for call in execution.calls]


def test_one_call_is_run_and_metered() -> None:
    llm = Script("<thought>6*7</thought><answer>42</answer>")
    execution = run(TEXTS["answer"], llm)
    assert (execution.outcome, execution.answer, names(execution)) == ("finished", "42", ["AnswerGenerate"])
    (call,) = execution.calls
    (exchange,) = call.exchanges
    assert (exchange.prompt, exchange.reply) == (llm.prompts[0], "<thought>6*7</thought><answer>42</answer>")
    assert (exchange.prompt_tokens, exchange.completion_tokens, exchange.cost) == (10, 5, 0.5)
    assert call.arguments == {"input": QUESTION.text} and call.result["answer"] == "42" and call.parse_ok
    assert (execution.tokens, execution.cost) == (15, 0.5)


def test_findings_of_the_configured_operators_travel_with_the_run() -> None:
    unused = TEXTS["answer"].replace(
        "        self.answer", "        self.r = operator.Review(self.llm)\n        self.answer"
    )
    execution = run(unused, Script("<answer>1</answer>"))
    assert (execution.outcome, [f.code for f in execution.findings]) == ("finished", ["W205"])
    execution = run(unused, Script("<answer>1</answer>"), operators=("AnswerGenerate",))
    assert execution.outcome == "invalid" and "W201" in [f.code for f in execution.findings]
    assert run(TEXTS["answer"], Script("<answer>1</answer>")).findings == ()


def test_a_reply_that_was_cut_off_can_be_seen() -> None:
    class Cut:
        async def chat(self, prompt: str, **options: Any) -> LLMReply:
            return LLMReply("<answer>4", "", "length", 10, 5, 0.5, 0.1)

    (call,) = run(TEXTS["think"], Cut()).calls
    assert (call.exchanges[0].finish_reason, call.exchanges[0].seconds) == ("length", 0.1)
    assert (call.parse_ok, call.error) == (False, "the model's reply was cut off after 5 tokens")
    assert call.result["response"] == "<answer>4", "what there is may be of use, and is marked"


def test_a_reply_from_the_cache_costs_what_it_was_made_at() -> None:
    """So that a workflow's cost does not hang on which others ran before it."""

    class Kept:
        async def chat(self, prompt: str, **options: Any) -> LLMReply:
            return LLMReply("<answer>4</answer>", "", "stop", 10, 5, 0.5, 0.0, cached=True)

    execution = run(TEXTS["answer"], Kept())
    assert (execution.tokens, execution.cost) == (15, 0.5)


class Seeded:
    """Keeps the seed of every prompt."""

    def __init__(self, slow: str = "") -> None:
        self.asked: list[tuple[str, int | None]] = []
        self.slow = slow

    async def chat(self, prompt: str, *, seed: int | None = None, **options: Any) -> LLMReply:
        self.asked.append((prompt, seed))
        await asyncio.sleep(0.05 if self.slow and self.slow in prompt else 0)
        return LLMReply(f"<answer>{prompt[-9:]}</answer>", "", "stop", 10, 5, 0.5, 0.1)


CHAINS = """import asyncio
class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def chain(self, text: str):
        first = await self.answer(input=text)
        return (await self.answer(input=text + first['answer']))['answer']

    async def __call__(self, problem: str):
        found = await asyncio.gather(self.chain('left'), self.chain('right'), self.chain('right'))
        return ' '.join(found), 0.0
"""


def test_each_request_has_a_seed_of_its_own_that_no_timing_alters() -> None:
    def seeds(seed: int | None, slow: str) -> list[tuple[str, int | None]]:
        llm = Seeded(slow)
        runner = WorkflowRunner(llm, box, WorkflowConfig(), EndpointConfig())
        execution = loop.run_until_complete(runner.run(CHAINS, QUESTION, seed))
        assert (execution.outcome, len(llm.asked)) == ("finished", 6)
        return sorted(llm.asked, key=str)

    first = seeds(5, "left")
    assert len({seed for _, seed in first}) == 6  # equal prompts too
    assert first == seeds(5, "right") != seeds(6, "left")
    assert {seed for _, seed in seeds(None, "")} == {None}


class Full:
    async def chat(self, prompt: str, **options: Any) -> LLMReply:
        raise PromptTooLong("http://127.0.0.1:1: HTTP 400: maximum context length is 8 tokens", "context")


def test_a_prompt_beyond_the_executors_context_is_the_workflows_doing() -> None:
    execution = run(TEXTS["answer"], Full())
    assert execution.outcome == "raised" and "does not fit the executor's context" in execution.error
    assert "127.0.0.1" not in execution.error


def test_a_call_says_why_it_failed() -> None:
    (call,) = run(TEXTS["answer"], Down()).calls
    assert (call.result, call.parse_ok, call.exchanges) == ({}, False, ())
    assert call.error == "ProviderError: http://127.0.0.1:1 does not answer"
    (call,) = run(TEXTS["answer"], Script("no tags")).calls
    assert (call.error, call.parse_ok) == ("no <answer> in the reply", False)


def test_the_context_belongs_to_the_problem() -> None:
    llm = Script("<answer>x</answer>")
    run(TEXTS["answer"], llm, replace(QUESTION, context="Some facts."))
    assert "Context: Some facts.\nQuestion: What is 6 times 7?" in llm.prompts[0]


def test_each_plan_and_published_graph_runs_to_an_answer() -> None:
    def reply(prompt: str) -> str:
        if "solve()" in prompt:
            return "```python\ndef solve():\n    return 6 * 7\n```"
        if "function f" in prompt:
            return f"```python\n{SQUARE}\n```"
        tags = {"answer": "42", "review_result": "False", "feedback": "no", "solution": "42", "solution_letter": "A"}
        return "".join(f"<{tag}>{text}</{tag}>" for tag, text in tags.items())

    graphs = {path.stem: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "graphs").glob("*.py")}
    assert graphs
    for name, source in {**TEXTS, **graphs}.items():
        is_code = "entry_point" in source
        execution = run(source, Script(reply), CODE if is_code else QUESTION)
        assert execution.outcome == "finished", (name, execution.error)
        assert (SQUARE if is_code else "42") in (execution.answer or ""), name


def test_review_and_revise_are_called_in_turn() -> None:
    texts = iter(
        [
            "<answer>41</answer>",
            "<feedback>off by one</feedback><review_result>False</review_result>",
            "<solution>42</solution>",
        ]
    )
    execution = run(TEXTS["review"], Script(lambda prompt: next(texts)))
    assert (execution.answer, names(execution)) == ("42", ["AnswerGenerate", "Review", "Revise"])


def test_the_programmers_code_runs_in_the_sandbox_and_its_errors_come_back() -> None:
    texts = iter(["def solve():\n    return 1 / 0", "def solve():\n    return 6 * 7"])
    llm = Script(lambda prompt: next(texts))
    execution = run(TEXTS["program"], llm)
    assert execution.answer == "42" and len(execution.calls[0].exchanges) == 2
    assert "ZeroDivisionError" in llm.prompts[1]


def test_public_tests_repair_code() -> None:
    texts = iter([DOUBLE, SQUARE])
    llm = Script(lambda prompt: next(texts))
    execution = run(TEXTS["code_test"], llm, CODE)
    assert (execution.answer, names(execution)) == (SQUARE, ["CustomCodeGenerate", "Test"])
    assert "assert f(3) == 9" in llm.prompts[1] and "got 6" in llm.prompts[1]


def test_an_invalid_text_is_not_run() -> None:
    llm = Script("x")
    execution = run(TEXTS["answer"].replace("'answer'", "'anser'"), llm)
    assert execution.outcome == "invalid" and "W207" in execution.error
    assert execution.answer is None and llm.prompts == []


def test_operators_not_allowed_are_invalid() -> None:
    assert run(TEXTS["program"], Script("x"), operators=("Custom",)).outcome == "invalid"


def test_a_provider_that_is_down_is_a_fault_even_if_the_workflow_catches_it() -> None:
    source = TEXTS["direct"].replace(
        "        result = await self.custom(input=problem, instruction='')\n",
        "        try:\n            result = await self.custom(input=problem, instruction='')\n"
        "        except BaseException:\n            return 'caught'\n",
    )
    for text in (source, TEXTS["direct"]):
        execution = run(text, Down())
        assert (execution.outcome, execution.answer) == ("fault", None)
        assert "does not answer" in execution.error
    assert names(execution) == ["Custom"]


def test_layer_two_reaches_the_executor() -> None:
    llm = Script("<answer>1</answer>")
    run(TEXTS["answer"], llm, enhance=lambda operator, domain: f"[{operator} for {domain}]")
    assert llm.prompts[0].startswith("[AnswerGenerate for math]\n")


class Metered:
    """A model that takes all it may: as many prompt tokens as bytes, as long a reply as it is allowed."""

    def __init__(self, usual: int = 100, tokens: int = 10**9, cost: float = 1e9) -> None:
        self.usual, self.left, self.money = usual, tokens, cost
        self.limits: list[int | None] = []

    async def chat(self, prompt: str, *, max_tokens: int | None = None, **options: Any) -> LLMReply:
        self.limits.append(max_tokens)
        sent, back = len(prompt.encode()), max_tokens or self.usual
        self.left -= sent + back
        self.money -= (sent * 2 + back * 8) / 1e6
        assert self.left >= 0 and self.money >= 0
        await asyncio.sleep(0.01)
        return LLMReply("<answer>1</answer><solution_letter>A</solution_letter>", "", "stop", sent, back,
                        (sent * 2 + back * 8) / 1e6, 0.0)  # fmt: skip


def test_tokens_have_a_budget_that_the_worst_case_is_reserved_of() -> None:
    executor = EndpointConfig(max_tokens=100, price_per_million_input=2.0, price_per_million_output=8.0)
    many = TEXTS["vote"].replace("range(3)", "range(20)")
    for bound in (300, 700, 1500, 3000):
        llm = Metered(tokens=bound)
        execution = run(many, llm, executor=executor, max_tokens=bound)
        assert execution.outcome == "budget" and execution.tokens <= bound
        assert "no further call fits" in execution.error
    llm = Metered(cost=0.004)
    execution = run(many, llm, executor=executor, max_cost=0.004)
    assert (execution.outcome, bool(llm.limits)) == ("budget", True)
    assert execution.cost <= 0.004


def test_a_budget_that_suffices_changes_no_call() -> None:
    llm = Metered()
    execution = run(TEXTS["vote"], llm, executor=EndpointConfig(max_tokens=100), max_tokens=10**6, max_cost=1e3)
    assert execution.outcome == "finished" and set(llm.limits) == {None}


def test_what_a_call_reserved_and_did_not_take_is_there_for_the_next() -> None:
    ledger = Ledger(WorkflowConfig(max_tokens=1000), EndpointConfig(max_tokens=100))
    for _ in range(30):
        with ledger.call("x" * 100, 800) as call:
            call.tokens = 10
    with pytest.raises(BudgetExceeded, match="300 executor tokens"), ledger.call("x" * 700, None):
        pass
    with pytest.raises(ProviderError), ledger.call("x", None):
        raise ProviderError("down")
    with ledger.call("x" * 100, 800) as last:
        assert last.reply_tokens == 1000 - 300 - 164


def test_calls_have_a_budget() -> None:
    source = TEXTS["vote"].replace("range(3)", "range(100)")
    execution = run(source, Script("<answer>1</answer>"), max_calls=4)
    assert execution.outcome == "budget" and len(execution.calls) == 4


def test_one_operator_cannot_spend_without_bound() -> None:
    source = TEXTS["vote"].replace("ScEnsemble(self.llm)", "MdEnsemble(self.llm, vote_count=10000)")
    source = source.replace("result['response']", "result['solution']")
    count = iter(range(10**6))
    execution = run(source, Script(lambda prompt: f"<answer>{next(count)}</answer>"), max_calls=4)
    assert execution.outcome == "budget"
    assert sum(len(call.exchanges) for call in execution.calls) <= 16


def test_a_vote_of_millions_is_stopped_before_it_is_made() -> None:
    source = TEXTS["ballot"].replace("MdEnsemble(self.llm)", "MdEnsemble(self.llm, vote_count=10**8)")
    count = iter(range(10**6))
    execution = run(source, Script(lambda prompt: f"<answer>{next(count)}</answer>"))
    assert execution.outcome == "budget" and execution.seconds < 10


def test_a_billion_votes_cost_the_host_nothing_before_the_budget_ends_them() -> None:
    source = TEXTS["vote"].replace("ScEnsemble(self.llm)", "MdEnsemble(self.llm, vote_count=10**9)")
    source = source.replace("result['response']", "result['solution']")
    count = iter(range(10**6))
    before = time.process_time()
    execution = run(source, Script(lambda prompt: f"<answer>{next(count)}</answer>"))
    assert execution.outcome == "budget" and "calls of the executor" in execution.error
    assert time.process_time() - before < 5


def test_what_a_record_keeps_of_prompts_and_replies_is_bounded() -> None:
    source = workflow(PLANS["answer"], "math").replace("input=problem", "input=problem + 'x' * 500_000")
    assert "500_000" in source
    (call,) = run(source, Script("<answer>" + "y" * 500_000 + "</answer>")).calls
    (exchange,) = call.exchanges
    assert max(len(exchange.prompt), len(exchange.reply)) <= 50_000
    assert "characters cut" in exchange.prompt and "characters cut" in exchange.reply


def test_the_workflows_own_mistakes_with_an_operator_are_its_own() -> None:
    source = TEXTS["vote"].replace("solutions=solutions", "solutions=problem")
    execution = run(source, Script("<answer>1</answer>"))
    assert execution.outcome == "raised" and "solutions must be a list, got str" in execution.error
    source = TEXTS["vote"].replace("solutions=solutions", "solutions=[]")
    assert "must hold 1 to 26 entries" in run(source, Script("<answer>1</answer>")).error


def test_text_arguments_take_what_a_format_string_takes() -> None:
    llm = Script("ok")
    source = TEXTS["direct"].replace("input=problem", "input={'a': 1}")
    assert run(source, llm).answer == "ok"
    assert "{'a': 1}" in llm.prompts[0]


def test_what_the_workflow_says_of_its_cost_is_ignored() -> None:
    source = TEXTS["direct"].replace("0.0", "-1e9")
    assert run(source, Script("x")).cost == 0.5


def test_many_runs_at_once_keep_their_accounts_apart() -> None:
    async def all_of_them() -> list[Execution]:
        llm = Script(lambda prompt: f"<answer>{prompt[-3:]}</answer>")
        runner = WorkflowRunner(llm, box, WorkflowConfig(), EndpointConfig())
        runs = [runner.run(TEXTS["answer"], replace(QUESTION, text=f"number {n:03}")) for n in range(30)]
        return list(await asyncio.gather(*runs))

    executions = loop.run_until_complete(all_of_them())
    assert [e.answer for e in executions] == [f"{n:03}" for n in range(30)]
    assert {e.tokens for e in executions} == {15}
