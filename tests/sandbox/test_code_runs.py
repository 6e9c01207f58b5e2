"""Code in the sandbox: every kind of misbehaviour is an outcome, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.processes import processes
from shared_box import SharedBox, in_sandbox, shared_box

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.children import outcome_of
from llm_as_judge.sandbox.host import CodeResult, Sandbox
from llm_as_judge.sandbox.public_test import run_assert
from llm_as_judge.sandbox.zygote_client import ExitReport

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SLEEPS = "import time; time.sleep(60)"


@pytest.fixture(scope="module")
def box() -> Iterator[SharedBox]:
    with shared_box(cpu_seconds=1, wall_seconds=2, memory_mb=256, output_bytes=10_000) as box:
        yield box


def test_a_run_has_output_value_error_and_no_input(box: SharedBox) -> None:
    result = box.run("print('a'); import sys; print('b', file=sys.stderr)")
    assert (result.outcome, result.stdout) == ("finished", "a\nb\n")
    assert box.run("def add(a, b):\n    return {'sum': a + b}", call="add", args=[2, 3]).value == {"sum": 5}
    result = box.run("def f():\n    x = 1\n    return x / 0\nf()")
    assert (result.outcome, result.error) == ("raised", "ZeroDivisionError: division by zero (line 3)")
    assert box.run("input()").error.startswith("EOFError")


def test_a_value_that_json_cannot_hold_is_text_and_a_coroutine_is_awaited(box: SharedBox) -> None:
    for expression, value in {
        "(1, 2)": "(1, 2)",
        "[(1, 2)]": "[(1, 2)]",
        "{1: 2}": "{1: 2}",
        "__import__('fractions').Fraction(1, 2)": "1/2",
        "2**70": 2**70,
        "[1.5, None, True, 'x']": [1.5, None, True, "x"],
    }.items():
        assert box.run(f"def f():\n    return {expression}", call="f").value == value
    assert box.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3", call="f").value == 3


def test_misbehaviour_is_an_outcome(box: SharedBox) -> None:
    forged_fault = 'b\'{"end": "fault"}\''
    cases = [
        ("def f(:", "raised", "SyntaxError"),
        ("while True: pass", "timeout", ""),
        ("import signal\nsignal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass", "timeout", ""),
        (SLEEPS, "timeout", "no result within 2 s"),
        ("x = bytearray(10**9)", "memory", "MemoryError"),
        ("x = 'a' * 1000\nwhile True: x *= 1000", "memory", "MemoryError"),
        ("while True: print('x' * 1000)", "output_limit", "10000 bytes"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "output_limit", "10000 bytes"),
        ("import sys; sys.exit(0)", "raised", "SystemExit: 0"),
        ("import os; os._exit(0)", "raised", "status 0"),
        ("import os; os._exit(99)", "raised", "status 99"),
        ("import ctypes; ctypes.string_at(0)", "raised", "signal 11"),
        ("def f(): f()\nf()", "raised", "RecursionError"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "raised", "E: <str() raised"),
        ("import socket\ns = socket.socket(fileno=3); s.close()\nwhile True: pass", "raised", "connection"),
        ("import os; os.write(3, b'\\x00\\x00\\x00\\x02{}')", "raised", "no result"),
        ("import os; os.write(3, b'\\x00\\x00\\x00\\x02[]')", "raised", "invalid message"),
        ("import os; os.write(3, b'\\xff' * 8)", "output_limit", "message takes over"),
        (f"import os\nb = {forged_fault}\nos.write(3, len(b).to_bytes(4, 'big') + b)\nos._exit(99)", "raised", ""),
        ("import os\nwhile True: os.fork()", "raised", "Error"),
    ]

    async def run_all() -> list[CodeResult]:
        return list(await asyncio.gather(*(box.sandbox.run_code(source) for source, _, _ in cases)))

    results = box.wait(run_all())
    found = [(*case, result) for case, result in zip(cases, results, strict=True)]
    assert not [row for row in found if row[3].outcome != row[1] or row[2] not in row[3].error]
    assert box.run("def f():\n    return 'x' * 5_000_000", call="f").outcome == "output_limit"


@linux
def test_the_zygote_itself_is_started_without_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def work(sandbox: Sandbox) -> bytes:
        assert sandbox._zygote is not None
        try:
            return Path(f"/proc/{sandbox._zygote.pid}/environ").read_bytes()
        except PermissionError:  # not even its own user may read it
            return b""

    assert b"secret" not in in_sandbox(work, mode="standard")


@linux
def test_processes_of_a_killed_run_are_killed_even_if_they_left_its_group() -> None:
    async def work(sandbox: Sandbox) -> None:
        for leave in ("", "os.setsid();", "os.setpgid(0, 0);"):
            source = f"""
import os, time
for _ in range(3):
    if os.fork() == 0:
        {leave} os.fork(); time.sleep(600)
time.sleep(600)
"""
            assert (await sandbox.run_code(source)).outcome == "timeout"
            assert sandbox._zygote is not None
            for _ in range(100):
                if not processes(sandbox._zygote.pid):
                    break
                await asyncio.sleep(0.02)
            assert not processes(sandbox._zygote.pid), leave

    in_sandbox(work, wall_seconds=0.5, mode="unsafe")


@linux
@pytest.mark.parametrize("started", [True, False])
def test_closing_ends_runs_under_way_and_every_process(started: bool) -> None:
    async def main() -> tuple[CodeResult, set[int]]:
        sandbox = Sandbox(SandboxConfig(wall_seconds=60))
        if started:
            await sandbox.start()
        task = asyncio.create_task(sandbox.run_code(SLEEPS))
        await asyncio.sleep(0.1)
        await sandbox.aclose()
        return await task, processes(os.getpid())

    before = processes(os.getpid())
    result, after = asyncio.run(main())
    assert result.outcome == "fault"
    assert after <= before


@linux
def test_a_cancelled_run_is_killed() -> None:
    async def work(sandbox: Sandbox) -> set[int]:
        task = asyncio.create_task(sandbox.run_code(SLEEPS))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sandbox._zygote is not None
        return processes(sandbox._zygote.pid)

    assert in_sandbox(work, wall_seconds=60, mode="standard") == set()


def test_only_a_child_that_was_never_set_up_is_a_fault() -> None:
    for confined, outcome in ((False, "fault"), (True, "raised")):
        child: Any = SimpleNamespace(killed_for="", confined=confined, last=None)
        assert outcome_of(child, ExitReport(99, 0.0), SandboxConfig())[0] == outcome


def test_describe_returns_what_the_self_test_found(box: SharedBox) -> None:
    found = box.sandbox.describe()
    assert found.probes["inherited environment"] == found.probes["new processes"] == "blocked"
    assert "rlimits" in found.layers and "not blocked: " in str(found)

    async def work(sandbox: Sandbox) -> str:
        return sandbox.describe().probes["new processes"]

    assert in_sandbox(work, mode="unsafe") == "open"
    with pytest.raises(SandboxFault, match=r"start\(\) first"):
        Sandbox(SandboxConfig()).describe()


def test_one_assert_reports_what_it_got_and_what_it_expected(box: SharedBox) -> None:
    solution = "def f(x):\n    return x + 1"
    asserts = ["assert f(1) == 2", "assert f(1) == 3", "assert f(1) > 5", "assert f('a') == 1"]
    right, wrong, other, error = (box.wait(run_assert(box.sandbox.run_code, solution, statement)) for statement in asserts)
    assert (right.passed, right.got, right.expected) == (True, "2", "2")
    assert (wrong.passed, wrong.got, wrong.expected) == (False, "2", "3")
    assert (other.passed, other.got) == (False, "")
    assert error.passed is False and error.error.startswith("TypeError")
