"""Workflows that abuse the connection to the host: each stays in bounds, and the next run is not disturbed."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
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


def raw(*lines: str) -> str:
    """Code that writes to the connection itself, before a workflow exists."""
    head = "import json, os, socket, struct, time\ns = socket.socket(fileno=3)\ns.setblocking(True)\n"
    head += "def send(d): s.sendall(struct.pack('!I', len(d)) + d)\n"
    head += "def call(**k): send(json.dumps({**usual, **k}).encode())\n"
    head += "usual = {'call': 1, 'operator': 'Custom', 'init': {}, 'arguments': {}}\n"
    return head + "\n".join(lines) + "\ntime.sleep(99)\n"


#: Name -> source, outcome, maximum number of calls served.
ABUSES: dict[str, tuple[str, str, int]] = {
    "endless calls": (workflow("while True: await self.op(input='x')"), "budget", 20),
    "ten thousand calls at once": (
        workflow("await asyncio.gather(*[self.op(input='x') for _ in range(10_000)])"), "budget", 20),
    "calls beyond the budget, errors swallowed": (
        workflow("while True:", "    try: await self.op(input='x')", "    except BaseException: pass"), "budget", 20),
    "calls that fail, errors swallowed": (
        workflow("while True:", "    try: await self.op(api_key='x')", "    except BaseException: pass"), "budget", 0),
    "a long prompt within the limit": (workflow("await self.op(input='y' * 900_000)", "return 'ok'"), "finished", 1),
    "a prompt over the limit": (workflow("await self.op(input='y' * 5_000_000)"), "output_limit", 0),
    "a frame of four gigabytes": (
        raw("s.sendall(b'\\xff' * 4)", "while True: s.sendall(b'x' * 65536)"), "output_limit", 0),
    "an unknown operator": (raw("call(operator='__class__')"), "timeout", 0),
    "a message that is no object": (raw("send(b'[1, 2]')"), "raised", 0),
    "deep JSON": (raw("send(b'[' * 400_000 + b']' * 400_000)"), "output_limit", 0),
    "deep JSON of few values": (raw("send(b'[' * 4000 + b']' * 4000)"), "raised", 0),
    "a list in a list, six hundred times": (
        workflow("x = []", "for _ in range(600): x = [x]", "await self.op(input=x)"), "raised", 0),
    "a quarter million empty lists": (workflow("await self.op(input=[[]] * 260_000)"), "output_limit", 0),
    "many values in many calls": (
        workflow("await asyncio.gather(*[self.op(input=['xy'] * 4000) for _ in range(20)])"), "output_limit", 4),
    "many short texts in many calls": (
        workflow("await asyncio.gather(*[self.op(input=['y'] * 9000) for _ in range(24)])"), "output_limit", 4),
    "much text in many calls": (
        workflow("await asyncio.gather(*[self.op(input='y' * 200_000) for _ in range(20)])"), "output_limit", 5),
    "emoji, four times as wide in memory": (
        workflow("await self.op(input='\\U0001f600' * 80_000 + 'y' * 300_000)"), "output_limit", 0),
    "a giant number": (raw("send(b'{\"call\": ' + b'9' * 900_000 + b'}')"), "raised", 0),
    "a number that is none": (raw("call(call=float('nan'))"), "raised", 0),
    "odd arguments": (workflow("await self.op(api_key='x', __class__=1)"), "raised", 0),
    "a busy loop": (workflow("while True: pass"), "timeout", 0),
    "replies that are never read": (raw("for i in range(15): call(call=i, operator='Big')"), "timeout", 15),
    "a cancellation swallowed": (
        workflow("while True:", "    try: await asyncio.sleep(9)", "    except BaseException: pass"), "timeout", 0),
    "half a frame": (raw("s.sendall(struct.pack('!I', 100) + b'{')"), "timeout", 0),
    "a look at the environment": (
        workflow("import sys", "bad = [m for m in sys.modules if m.split('.')[0] in ('aiohttp', 'openai', 'pydantic')]",
                 "return str([dict(os.environ), bad])"), "finished", 0),
    "a thread": (workflow("return await asyncio.to_thread(lambda: 'x')"), "raised", 0),
    "the same number twice": (raw("call()", "call()"), "timeout", 2),
    "arguments of the wrong shape": (raw("call(arguments=[1])"), "raised", 0),
    "an end that is none": (raw("send(b'{\"end\": [\"finished\"], \"answer\": 1}')"), "raised", 0),
    "an answer that is no text": (raw("send(b'{\"end\": \"finished\", \"answer\": {\"a\": 1}}')"), "raised", 0),
}  # fmt: skip


async def attempt(sandbox: Sandbox, source: str, host: Host) -> Execution:
    return await sandbox.run_workflow(source, Question("q", "P", "qa"), WORKFLOW, host.call, OPERATORS)


def test_abuse_stays_in_bounds_and_does_not_disturb_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setattr(limits, "FRAME_BYTES", 1 << 20)
    hosts = {name: Host() for name in ABUSES}
    honest = workflow("return (await self.op(input='x'))['response']")

    async def work(sandbox: Sandbox) -> tuple[list[Execution], Execution]:
        abused = await asyncio.gather(*(attempt(sandbox, ABUSES[name][0], host) for name, host in hosts.items()))
        return abused, await attempt(sandbox, honest, Host())

    found, after = in_sandbox(work, **LIMITS)
    results = dict(zip(ABUSES, found, strict=True))
    wrong = []
    for name, (_, outcome, most) in ABUSES.items():
        host = hosts[name]
        left = host.now and outcome not in ("timeout", "budget", "output_limit")
        if results[name].outcome != outcome or host.served > most or host.most > 8 or left:
            wrong.append((name, results[name], host.served, host.most))
    assert not wrong
    assert results["calls that fail, errors swallowed"].error == "over 64 operator calls"
    assert results["a look at the environment"].answer == "[{}, []]"
    assert (after.outcome, after.answer) == ("finished", "r")
