"""Workflows in the sandbox: AFlow's names, operator calls over the wire, limits, fault attribution."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from helpers.tables import tables
from shared_box import SharedBox, in_sandbox, workflow

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ProviderError, WorkflowError
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.host import BudgetExceeded, OperatorParameters, Sandbox
from llm_as_judge.sandbox.results import KEPT, KEPT_OF_ERROR
from llm_as_judge.types import Execution, Question

TABLES = tables(__file__)

OPERATORS = {
    "Custom": OperatorParameters(("input", "instruction")),
    "MdEnsemble": OperatorParameters(("solutions", "problem"), ("vote_count",)),
}
Call = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[Mapping[str, Any]]]
Run = Callable[..., Execution]


async def echo(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
    return {"response": f"{name}:{arguments.get('instruction')}:{arguments.get('input')}", "init": str(init)}


def raising(error: Exception, seconds: float = 0.0) -> Call:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(seconds)
        raise error

    return call


@pytest.fixture
def run(box: SharedBox) -> Run:
    """Runs a workflow in the shared sandbox, or with ``settings`` in one of its own."""

    def run(source: str, call: Call = echo, *, entry_point: str | None = None, **settings: Any) -> Execution:
        def work(sandbox: Sandbox) -> Awaitable[Execution]:
            question = Question("q", "P", "qa", entry_point=entry_point)
            return sandbox.run_workflow(source, question, WorkflowConfig(), call, OPERATORS)

        return in_sandbox(work, **settings) if settings else box.wait(work(box.sandbox))

    return run


def test_an_operator_call_goes_to_the_host_and_back(run: Run) -> None:
    result = run(workflow("r = await self.custom(input=problem, instruction='I')", "return r['response'], 0.0"))
    assert (result.outcome, result.answer) == ("finished", "Custom:I:P")
    init = "self.md = operator.MdEnsemble(self.llm, 3)"
    positional = workflow("r = await self.md(['a'], problem)", "return r['init']", init=init)
    assert run(positional).answer == "{'vote_count': 3}"


def test_calls_awaited_together_are_served_together_up_to_the_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = most = 0

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return {"response": arguments["input"]}

    source = workflow(
        "rs = await asyncio.gather(*[self.custom(input=str(i), instruction='') for i in range(6)])",
        "return ''.join(r['response'] for r in rs)",
    )
    for limit in (6, 2):
        most = 0
        monkeypatch.setattr(limits, "CONCURRENT_CALLS", limit)
        assert run(source, call).answer == "012345"
        assert most == limit


def test_a_returned_value_becomes_the_answer_and_the_entry_point_is_given(run: Run) -> None:
    answers = TABLES["answers"]
    assert {value: run(workflow(f"return {value}")).answer for value in answers} == answers
    for value, error in TABLES["no answers"].items():
        result = run(workflow(f"return {value}"))
        assert result.outcome == "raised" and error in result.error and result.answer is None
    takes = "async def __call__(self, {}, {})".format
    for problem, name in (("problem", "entry_point"), ("question, *", "entry_point"), ("p", "e")):
        assert run(workflow(f"return {name}", call=takes(problem, name)), entry_point="f").answer == "f"
    assert run(workflow("return 'x'"), entry_point="f").answer == "x"
    missing = run(workflow("return 'x'", call=takes("problem", "entry_point")))
    assert missing.outcome == "raised" and "wants an entry_point" in missing.error


def test_misbehaviour_is_an_outcome(run: Run) -> None:
    """That of any code is in test_code_runs, that of messages in test_rpc_abuse."""
    wrong = []
    for body, outcome, error in TABLES["misbehaviour"]:
        limits = {"cpu_seconds": 1, "wall_seconds": 1.5} if outcome == "timeout" else {}
        result = run(workflow(body), **limits)
        if result.outcome != outcome or error not in result.error:
            wrong.append((body, result))
    assert not wrong
    assert "Workflow" in run("x = 1").error


def test_who_is_at_fault_for_a_failed_call_decides_the_outcome(run: Run) -> None:
    catches = (
        "try: r = await self.custom(input='', instruction='')",
        "except BaseException as e: return repr(e)",
        "return 'no'",
    )
    result = run(workflow(*catches), raising(WorkflowError("bad arguments")))
    assert (result.outcome, result.answer) == ("finished", "OperatorError('bad arguments')")
    result = run(workflow(*catches), raising(RuntimeError("of these arguments")))
    assert (result.outcome, result.answer) == ("finished", "OperatorError('Custom: RuntimeError: of these arguments')")
    result = run(workflow(*catches), raising(ProviderError("down")))
    assert (result.outcome, result.error, result.answer) == ("fault", "ProviderError: down", None)
    result = run(workflow(*catches), raising(BudgetExceeded("9 tokens spent of 8")))
    assert (result.outcome, result.error) == ("budget", "9 tokens spent of 8")
    # An executor that times out, however long that takes.
    result = run(workflow(*catches), raising(ProviderError("no answer within 1 s"), 1), wall_seconds=0.5)
    assert (result.outcome, result.error) == ("fault", "ProviderError: no answer within 1 s")


def test_calls_are_cancelled_with_a_run_or_completed_and_counted(run: Run) -> None:
    ended: list[type] = []

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            ended.append(type(error))
            raise
        return {}

    source = workflow("asyncio.create_task(self.custom(input=''))", "await asyncio.sleep(0.1)", "while True: pass")
    result = run(source, call, cpu_seconds=1)
    assert (result.outcome, result.error, ended) == ("timeout", "over 1 s of CPU time", [asyncio.CancelledError])
    ended = 0

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal ended
        await asyncio.sleep(0.05 * int(arguments["input"]))
        ended += 1
        return {"response": ""}

    source = workflow(
        "tasks = [asyncio.create_task(self.custom(input=str(n))) for n in range(8)]",
        "await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)",
        "return 'first'",
    )
    assert run(source, call).answer == "first"
    assert ended == 8
    source = workflow("t = asyncio.create_task(self.custom(input=''))", "await asyncio.sleep(0)", "return 'x'")
    result = run(source, raising(BudgetExceeded("9 tokens spent of 8"), 0.1))
    assert (result.outcome, result.answer, result.error) == ("budget", None, "9 tokens spent of 8")


def test_the_clock_is_paused_during_operator_calls_only(run: Run) -> None:
    async def slow(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(float(arguments["input"]))
        return {"response": "late" if arguments["input"] != "0" else "x" * 2_000_000}

    calls = "rs = await asyncio.gather(*[self.custom(input=s) for s in ('0.4', '1.5', '1')])"
    assert run(workflow(calls, "return rs[1]['response']"), slow, wall_seconds=0.6).answer == "late"
    assert run(workflow(calls, "await asyncio.sleep(9)"), slow, wall_seconds=0.6).outcome == "timeout"
    around = workflow("await asyncio.sleep(0.4)", calls, "await asyncio.sleep(0.4)")
    assert run(around, slow, wall_seconds=0.6).outcome == "timeout"
    unread = ("t = asyncio.create_task(self.custom(input='0'))", "await asyncio.sleep(0)", "time.sleep(9)")
    assert run(workflow(*unread), slow, wall_seconds=0.5).outcome == "timeout", "a large reply that is never read"


def test_workflows_whose_operators_run_code_do_not_block_each_other() -> None:
    async def work(sandbox: Sandbox) -> list[Execution]:
        async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
            return {"response": str((await sandbox.run_code("def f(): return 5", call="f")).value)}

        source = workflow("return (await self.custom(input='', instruction=''))['response']")
        runs = [
            sandbox.run_workflow(source, Question("q", "", "qa"), WorkflowConfig(), call, OPERATORS) for _ in range(6)
        ]
        return list(await asyncio.gather(*runs))

    assert [r.answer for r in in_sandbox(work, max_code_runs=2)] == ["5"] * 6


def test_tasks_that_a_workflow_leaves_behind_are_not_waited_for(run: Run) -> None:
    source = workflow(
        "async def stubborn():",
        "    while True:",
        "        try: await asyncio.sleep(9)",
        "        except BaseException: pass",
        "left = asyncio.create_task(stubborn())",
        "try: await asyncio.wait_for(asyncio.sleep(30), 0.1)",
        "except asyncio.TimeoutError: return (await self.custom(input='x'))['response']",
    )
    assert run(source).answer == "Custom:None:x"


def test_what_is_kept_of_answers_and_errors_is_bounded_and_says_so(run: Run) -> None:
    result = run(workflow("return 'begin' + '\\U0001f600' * 300_000 + 'end'"))
    assert result.outcome == "finished" and result.answer is not None
    assert KEPT - 100 < len(result.answer) <= KEPT
    assert result.answer.startswith("begin") and result.answer.endswith("end")
    assert "250068 characters cut" in result.answer
    forged = 'import json, os\nb = json.dumps({"end": "raised", "error": "e" * 1_000_000}).encode()\n'
    forged += 'os.set_blocking(3, True)\nos.write(3, len(b).to_bytes(4, "big") + b)\nos._exit(0)'
    error = run(forged).error
    assert len(error) <= KEPT_OF_ERROR and "998060 characters cut" in error
    kept = "short\n" * 100
    assert run(workflow(f"return {kept!r}")).answer == kept
