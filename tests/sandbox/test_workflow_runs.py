"""Workflows in the sandbox: AFlow's names, operator calls over the wire, limits, whose fault it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.errors import ProviderError, WorkflowError
from llm_as_judge.sandbox.host import BudgetExceeded, OperatorParameters, Sandbox, WorkflowResult

CONFIG = SandboxConfig(cpu_seconds=2, wall_seconds=5)
WORKFLOW = WorkflowConfig()
OPERATORS = {
    "Custom": OperatorParameters(("input", "instruction")),
    "MdEnsemble": OperatorParameters(("solutions", "problem"), ("vote_count",)),
}


loop: asyncio.AbstractEventLoop
box: Sandbox


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """One sandbox on one loop for all tests that need nothing special."""
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(CONFIG)
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


async def echo(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
    return {"response": f"{name}:{arguments.get('instruction')}:{arguments.get('input')}", "init": str(init)}


def workflow(
    *body: str, parameters: str = "self, problem", init: str = "self.custom = operator.Custom(self.llm)"
) -> str:
    return "\n".join(
        [
            "import asyncio",
            "class Workflow:",
            "    def __init__(self, name, llm_config, dataset):",
            "        self.llm = create_llm_instance(llm_config)",
            f"        {init}",
            f"    async def __call__({parameters}):",
            *(f"        {line}" for line in body),
        ]
    )


def run(
    source: str,
    call: Any = echo,
    *,
    config: SandboxConfig = CONFIG,
    workflow: WorkflowConfig = WORKFLOW,
    entry_point: str | None = None,
    operators: Any = OPERATORS,
) -> WorkflowResult:
    async def main() -> WorkflowResult:
        sandbox = box if config is CONFIG else Sandbox(config)
        try:
            return await sandbox.run_workflow(
                source,
                problem="P",
                entry_point=entry_point,
                call_operator=call,
                config=workflow,
                operators=operators,
            )
        finally:
            if sandbox is not box:
                await sandbox.aclose()

    return loop.run_until_complete(main())


def test_an_operator_call_goes_to_the_host_and_back() -> None:
    result = run(workflow("r = await self.custom(input=problem, instruction='I')", "return r['response'], 0.0"))
    assert (result.outcome, result.answer) == ("finished", "Custom:I:P")


def test_arguments_by_position_and_of_init_arrive_by_name() -> None:
    source = workflow(
        "r = await self.md(['a'], problem)",
        "return r['init']",
        init="self.md = operator.MdEnsemble(self.llm, 3)",
    )
    assert run(source).answer == "{'vote_count': 3}"


def test_without_parameter_names_any_operator_is_called_by_keyword() -> None:
    source = workflow("return (await self.x(input=problem))['response']", init="self.x = operator.Anything(self.llm)")
    assert run(source, operators=None).answer == "Anything:None:P"


def test_calls_awaited_together_are_served_together() -> None:
    waiting = 0

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal waiting
        waiting += 1
        while waiting < 3:
            await asyncio.sleep(0.001)
        return {"response": arguments["input"]}

    source = workflow(
        "rs = await asyncio.gather(*[self.custom(input=str(i), instruction='') for i in range(3)])",
        "return ''.join(r['response'] for r in rs)",
    )
    assert run(source, call).answer == "012"


def test_no_more_than_the_limit_are_served_at_once() -> None:
    now, most = 0, 0

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return {"response": ""}

    source = workflow(
        "await asyncio.gather(*[self.custom(input='', instruction='') for i in range(9)])", "return 'done'"
    )
    assert run(source, call, workflow=WorkflowConfig(max_concurrent_calls=2)).answer == "done"
    assert most == 2


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("'a'", "a"),
        ("('a', 0.0)", "a"),
        ("7", "7"),
        ("2.5, 1", "2.5"),
        ("True", "True"),
        ("('é\\ud800', 0)", "é?"),
    ],
)
def test_what_is_returned_becomes_text(value: str, answer: str) -> None:
    assert run(workflow(f"return {value}")).answer == answer


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("None", "returned None instead of an answer"),
        ("()", "returned None"),
        ("{'response': 1}", "return one of its values ('response')"),
        ("['a'], 0.0", "returned a list instead of an answer"),
    ],
)
def test_what_is_no_answer_is_refused(value: str, error: str) -> None:
    result = run(workflow(f"return {value}"))
    assert result.outcome == "raised" and error in result.error and result.answer is None


def test_the_entry_point_is_given_by_signature() -> None:
    for parameters in ("self, problem, entry_point", "self, question, *, entry_point", "self, p, e"):
        name = "e" if parameters.endswith(" e") else "entry_point"
        assert run(workflow(f"return {name}", parameters=parameters), entry_point="f").answer == "f"
    assert run(workflow("return 'x'"), entry_point="f").answer == "x"
    missing = run(workflow("return 'x'", parameters="self, problem, entry_point"))
    assert missing.outcome == "raised" and "wants an entry_point" in missing.error


def test_a_type_error_inside_the_workflow_runs_it_once() -> None:
    seen: list[str] = []

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        seen.append(name)
        return {"response": "r"}

    source = workflow("await self.custom(input='', instruction='')", "raise TypeError('takes 1 positional argument')")
    assert run(source, call, entry_point="f").outcome == "raised"
    assert seen == ["Custom"]


AFLOW = """from typing import Literal
import workspace.GSM8K.workflows.template.operator as operator
import workspace.GSM8K.workflows.round_1.prompt as prompt_custom
from scripts.async_llm import create_llm_instance
from scripts.evaluator import DatasetType

class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
        solution = await self.custom(input=problem, instruction="")
        return solution['response'], self.llm.get_usage_summary()["total_cost"]
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import workspace.GSM8K.workflows.template.operator as operator",
        "from workspace.GSM8K.workflows.template import operator",
        "from ..template import operator",
        "import operator",
        "from scripts import operators as operator",
        "",
    ],
)
def test_aflow_imports_resolve(imports: str) -> None:
    source = AFLOW.replace("import workspace.GSM8K.workflows.template.operator as operator", imports)
    assert run(source).answer == "Custom::P"


@pytest.mark.parametrize(
    ("body", "outcome", "error"),
    [
        ("while True: pass", "timeout", ""),
        ("await asyncio.sleep(100)", "timeout", "no result within"),
        ("x = bytearray(10**10)", "memory", ""),
        ("import os; os._exit(0)", "raised", "status 0"),
        ("while True: print('x' * 10000)", "output_limit", ""),
        ("return 'x' * 10**7", "output_limit", "bytes"),
        ("await self.custom(input='x' * 10**7, instruction='')", "output_limit", "message takes over"),
        ("await self.custom(nonsense=object())", "raised", "TypeError"),
        ("await self.custom('a', 'b', 'c')", "raised", "takes 2 positional arguments but 3 were given"),
        ("operator.Nothing(self.llm)", "raised", "has no attribute 'Nothing'"),
        ("await self.llm('hello')", "raised", "use an operator"),
        ("return undefined", "raised", "NameError: name 'undefined' is not defined (line 7)"),
    ],
)
def test_misbehaviour_is_an_outcome(body: str, outcome: str, error: str) -> None:
    result = run(workflow(body), config=SandboxConfig(cpu_seconds=1, wall_seconds=2))
    assert (result.outcome, error in result.error) == (outcome, True), result


def test_a_text_without_a_workflow_raises() -> None:
    assert "Workflow" in run("x = 1").error


def test_the_call_limit_ends_the_run_even_if_the_workflow_catches_everything() -> None:
    served = 0

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal served
        served += 1
        return {"response": ""}

    source = workflow(
        "while True:",
        "    try: await self.custom(input='', instruction='')",
        "    except BaseException: pass",
    )
    result = run(source, call, workflow=WorkflowConfig(max_calls=5))
    assert (result.outcome, result.error, served) == ("budget", "over 5 operator calls", 5)


CATCHES = (
    "try: r = await self.custom(input='', instruction='')",
    "except BaseException as e: return repr(e)",
    "return 'no'",
)


def test_a_workflow_error_is_raised_in_the_workflow() -> None:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        raise WorkflowError("bad arguments")

    result = run(workflow(*CATCHES), call)
    assert (result.outcome, result.answer) == ("finished", "OperatorError('bad arguments')")


@pytest.mark.parametrize("error", [ProviderError("down"), RuntimeError("a bug of ours")])
def test_a_failure_of_ours_is_a_fault_whatever_the_workflow_catches(error: Exception) -> None:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        raise error

    result = run(workflow(*CATCHES), call)
    assert result.outcome == "fault" and str(error) in result.error and result.answer is None


def test_a_spent_budget_ends_the_run() -> None:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        raise BudgetExceeded("9 tokens spent of 8")

    result = run(workflow(*CATCHES), call)
    assert (result.outcome, result.error) == ("budget", "9 tokens spent of 8")


def test_operators_under_way_are_cancelled_when_the_run_is_over_without_a_result() -> None:
    cancelled = False

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled = True
            raise
        return {}

    source = workflow(
        "task = asyncio.create_task(self.custom(input='', instruction=''))",
        "await asyncio.sleep(0.1)",
        "while True: pass",
    )
    result = run(source, call, config=SandboxConfig(cpu_seconds=1))
    assert (result.outcome, result.error) == ("timeout", "over 1 s of CPU time")
    assert cancelled


async def slow(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
    await asyncio.sleep(float(arguments["input"]))
    return {"response": "late"}


def test_the_clock_stands_still_while_an_operator_call_is_under_way() -> None:
    config = SandboxConfig(wall_seconds=0.6)
    calls = "rs = await asyncio.gather(*[self.custom(input=s) for s in ('0.4', '1.5', '1')])"
    assert run(workflow(calls, "return rs[1]['response']"), slow, config=config).answer == "late"
    after = run(workflow(calls, "await asyncio.sleep(9)"), slow, config=config)
    assert after.outcome == "timeout" and after.seconds < 4
    before = run(workflow("await asyncio.sleep(0.4)", calls, "await asyncio.sleep(0.4)"), slow, config=config)
    assert before.outcome == "timeout"


def test_an_executor_that_times_out_is_a_fault_however_long_it_took() -> None:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(1)
        raise ProviderError("no answer within 1 s")

    result = run(workflow(*CATCHES), call, config=SandboxConfig(wall_seconds=0.5))
    assert (result.outcome, result.error) == ("fault", "ProviderError: no answer within 1 s")


def test_a_reply_that_is_never_read_does_not_stop_the_clock() -> None:
    async def big(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        return {"response": "x" * 2_000_000}

    source = workflow(
        "t = asyncio.create_task(self.custom(input=''))", "await asyncio.sleep(0)", "import time", "time.sleep(9)"
    )
    assert run(source, big, config=SandboxConfig(wall_seconds=0.5)).outcome == "timeout"


def test_calls_that_a_workflow_does_not_wait_for_are_ended_and_counted() -> None:
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


def test_a_budget_spent_by_a_call_that_nobody_waits_for_is_spent() -> None:
    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(0.1)
        raise BudgetExceeded("9 tokens spent of 8")

    source = workflow("t = asyncio.create_task(self.custom(input=''))", "await asyncio.sleep(0)", "return 'x'")
    result = run(source, call)
    assert (result.outcome, result.answer, result.error) == ("budget", None, "9 tokens spent of 8")


def test_two_hundred_workflows_at_once() -> None:
    source = workflow(
        "a, b = await asyncio.gather(self.custom(input=problem, instruction='1'), self.custom(problem, '2'))",
        "return a['response'] + b['response']",
    )

    async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        await asyncio.sleep(0.02)
        return {"response": arguments["input"] + arguments["instruction"]}

    async def main() -> list[WorkflowResult]:
        async with Sandbox(SandboxConfig()) as sandbox:
            runs = [
                sandbox.run_workflow(
                    source, problem=f"P{n}-", entry_point=None, call_operator=call, config=WORKFLOW, operators=OPERATORS
                )
                for n in range(200)
            ]
            return list(await asyncio.gather(*runs))

    assert [r.answer for r in asyncio.run(main())] == [f"P{n}-1P{n}-2" for n in range(200)]


def test_a_workflow_whose_operator_runs_code_cannot_lock_itself_out() -> None:
    async def main() -> list[WorkflowResult]:
        async with Sandbox(SandboxConfig(max_workflows=2), max_code_runs=2) as sandbox:

            async def call(name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
                return {"response": str((await sandbox.run_code("def f(): return 5", call="f")).value)}

            source = workflow("return (await self.custom(input='', instruction=''))['response']")
            runs = [
                sandbox.run_workflow(source, problem="", entry_point=None, call_operator=call, config=WORKFLOW)
                for _ in range(6)
            ]
            return list(await asyncio.gather(*runs))

    assert [r.answer for r in asyncio.run(main())] == ["5"] * 6


def test_a_workflow_has_timers_tasks_and_time_outs() -> None:
    source = workflow(
        "seen = []",
        "async def late(delay):",
        "    await asyncio.sleep(delay)",
        "    seen.append(delay)",
        "tasks = [asyncio.create_task(late(d)) for d in (0.03, 0.01)]",
        "try:",
        "    await asyncio.wait_for(asyncio.sleep(30), 0.2)",
        "except asyncio.TimeoutError:",
        "    seen.append('timeout')",
        "done, pending = await asyncio.wait(tasks)",
        "asyncio.get_running_loop().call_soon_threadsafe(seen.append, 'soon')",
        "await asyncio.sleep(0)",
        "first = await self.custom(input='x')",
        "return f'{seen} {len(done)} {first[\"response\"]}'",
    )
    assert run(source).answer == "[0.01, 0.03, 'timeout', 'soon'] 2 Custom:None:x"
