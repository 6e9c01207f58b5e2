"""Workflows that abuse the connection to the host: each stays in bounds, and the next run is not disturbed."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from helpers.tables import tables
from shared_box import in_sandbox
from shared_box import workflow as any_workflow

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import WorkflowError
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.host import BudgetExceeded, OperatorParameters, Sandbox
from llm_as_judge.types import Execution, Question

LIMITS = {"cpu_seconds": 1, "wall_seconds": 4}
WORKFLOW = WorkflowConfig(max_calls=64)
OPERATORS = {"Custom": OperatorParameters(("input",)), "Big": OperatorParameters(())}
workflow = partial(any_workflow, init="self.op = operator.Custom(self.llm)")


class Host:
    """Operators with a budget of 20 calls; counts requests."""

    def __init__(self) -> None:
        self.served = 0
        self.now = 0
        self.most = 0

    async def call(self, name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        if name not in OPERATORS or set(arguments) - {"input"}:
            raise WorkflowError(f"{name}({', '.join(arguments)}) cannot be called")
        if self.served >= 20:
            raise BudgetExceeded("20 calls are paid for")
        self.served += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        return {"response": "z" * 500_000 if name == "Big" else "r"}


def raw(code: str) -> str:
    """Code that writes to the connection itself, before a workflow exists."""
    head = "import json, os, socket, struct, time\ns = socket.socket(fileno=3)\ns.setblocking(True)\n"
    head += "def send(d): s.sendall(struct.pack('!I', len(d)) + d)\n"
    head += "def call(**k): send(json.dumps({**usual, **k}).encode())\n"
    head += "usual = {'call': 1, 'operator': 'Custom', 'init': {}, 'arguments': {}}\n"
    return f"{head}{code}time.sleep(99)\n"


ABUSES = tables(__file__)


async def attempt(sandbox: Sandbox, source: str, host: Host) -> Execution:
    return await sandbox.run_workflow(source, Question("q", "P", "qa"), WORKFLOW, host.call, OPERATORS)


def test_abuse_stays_in_bounds_and_does_not_disturb_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setattr(limits, "FRAME_BYTES", 1 << 20)
    hosts = {name: Host() for name in ABUSES}
    honest = workflow("return (await self.op(input='x'))['response']")

    async def work(sandbox: Sandbox) -> tuple[list[Execution], Execution]:
        sources = [raw(abuse["raw"]) if "raw" in abuse else workflow(abuse["workflow"]) for abuse in ABUSES.values()]
        abused = await asyncio.gather(*map(partial(attempt, sandbox), sources, hosts.values()))
        return abused, await attempt(sandbox, honest, Host())

    found, after = in_sandbox(work, **LIMITS)
    results = dict(zip(ABUSES, found, strict=True))
    wrong = []
    for name, abuse in ABUSES.items():
        host, outcome = hosts[name], abuse["outcome"]
        left = host.now and outcome not in ("timeout", "budget", "output_limit")
        if results[name].outcome != outcome or host.served > abuse["served"] or host.most > 8 or left:
            wrong.append((name, results[name], host.served, host.most))
    assert not wrong
    assert results["calls that fail, errors swallowed"].error == "over 64 operator calls"
    assert results["a look at the environment"].answer == "[{}, []]"
    assert (after.outcome, after.answer) == ("finished", "r")
