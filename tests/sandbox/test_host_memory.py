"""Memory that many hostile workflows at once can make the host hold."""

import json
import sys

import pytest
from helpers.processes import program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: As many and as large calls as are taken, half a message of the largest size, and never an end.
HEAVY = """
import asyncio, os, struct, time
class Workflow:
    def __init__(self, *a): self.op = operator.Custom(None)
    async def __call__(self, problem):
        for n in range(24):
            asyncio.create_task(self.op(input=[f"{i:0380d}" for i in range(360)]))
        await asyncio.sleep(0)
        os.set_blocking(3, True)
        os.write(3, struct.pack("!I", 4_000_000))
        for _ in range(39): os.write(3, b" " * 100_000)
        time.sleep(99)
"""

SCRIPT = """
import asyncio, json, os, sys
from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.sandbox.host import OperatorParameters, Sandbox

kept, release = [], asyncio.Event()

def megabytes():  # of this moment: the peak of a process that was just started is its parent's
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

async def call(name, init, arguments):
    kept.append(arguments)
    await release.wait()
    return {"response": ""}

async def main():
    workflow = WorkflowConfig(max_concurrent_calls=24)
    async with Sandbox(SandboxConfig(wall_seconds=60.0)) as sandbox:
        before = megabytes()
        runs = [
            asyncio.create_task(sandbox.run_workflow(
                sys.argv[1], problem="", entry_point=None, call_operator=call, config=workflow,
                operators={"Custom": OperatorParameters(("input",))}))
            for _ in range(64)
        ]
        while len(kept) < 64 * 24 and not any(run.done() for run in runs):
            await asyncio.sleep(0.05)
        grown = last = -1
        while grown < 0 or grown > last:  # until the half messages have come
            last = grown
            await asyncio.sleep(3)
            grown = megabytes() - before
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        print(json.dumps([len(kept), grown]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_64_workflows_at_once_make_the_host_hold_no_more_than_is_stated() -> None:
    done = program(sys.executable, "-c", SCRIPT, HEAVY)
    assert done.returncode == 0, done.stderr[-1000:]
    calls, megabytes = json.loads(done.stdout)
    assert calls == 64 * 24
    # 4 MB each for its calls and for one message; the documented limit is 12 MB per workflow.
    assert 64 * 3 < megabytes < 64 * 12, megabytes
