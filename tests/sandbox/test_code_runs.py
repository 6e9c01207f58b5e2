"""Code in the sandbox: every way to misbehave is an outcome, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from helpers.processes import processes, running

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import DataError, SandboxFault
from llm_as_judge.sandbox.children import ExitReport as Ended
from llm_as_judge.sandbox.children import outcome_of
from llm_as_judge.sandbox.host import CodeResult, Sandbox
from llm_as_judge.sandbox.public_test import run_assert

TIGHT = {"cpu_seconds": 1, "wall_seconds": 2, "memory_mb": 256, "output_bytes": 10_000}
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
T = TypeVar("T")


def with_sandbox(work: Callable[[Sandbox], Awaitable[T]], *, max_code_runs: int | None = None, **settings: Any) -> T:
    """``work`` in a sandbox of these settings; tight ones where there are none."""
    config = SandboxConfig.model_validate({"mode": "standard", **(settings or TIGHT)})

    async def main() -> T:
        async with Sandbox(config, max_code_runs=max_code_runs) as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """One sandbox on one loop for all tests that need nothing special."""
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(SandboxConfig.model_validate(TIGHT))
    loop.run_until_complete(box.start())
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


loop: asyncio.AbstractEventLoop
box: Sandbox


def run(source: str, **kwargs: Any) -> CodeResult:
    return loop.run_until_complete(box.run_code(source, **kwargs))


def test_a_script_finishes_with_its_output() -> None:
    result = run("print('a'); import sys; print('b', file=sys.stderr)")
    assert (result.outcome, result.stdout) == ("finished", "a\nb\n")


def test_a_called_function_gives_its_value() -> None:
    result = run("def add(a, b):\n    return {'sum': a + b}", call="add", args=[2, 3])
    assert result.value == {"sum": 5}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(1, 2)", "(1, 2)"),
        ("[(1, 2)]", "[(1, 2)]"),
        ("{1: 2}", "{1: 2}"),
        ("__import__('fractions').Fraction(1, 2)", "1/2"),
        ("2**70", str(2**70)),
        ("[1.5, None, True, 'x']", [1.5, None, True, "x"]),
    ],
)
def test_values_that_are_not_json_come_as_text(expression: str, value: object) -> None:
    assert run(f"def f():\n    return {expression}", call="f").value == value


def test_a_coroutine_function_is_awaited() -> None:
    assert run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3", call="f").value == 3


def test_an_error_names_type_message_and_line() -> None:
    result = run("def f():\n    x = 1\n    return x / 0\nf()")
    assert (result.outcome, result.error) == ("raised", "ZeroDivisionError: division by zero (line 3)")


def test_stdin_is_what_was_given_and_empty_otherwise() -> None:
    assert run("print(input())", stdin="hello\n").stdout == "hello\n"
    assert run("input()").error.startswith("EOFError")


@pytest.mark.parametrize(
    ("source", "outcome", "error"),
    [
        ("def f(:", "raised", "SyntaxError"),
        ("while True: pass", "timeout", ""),
        ("import signal\nsignal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass", "timeout", ""),
        ("import time; time.sleep(60)", "timeout", "no result within 2 s"),
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
    ],
)
def test_misbehaviour_is_an_outcome(source: str, outcome: str, error: str) -> None:
    started = time.monotonic()
    result = run(source)
    assert (result.outcome, error in result.error) == (outcome, True), result
    assert time.monotonic() - started < 8


def test_cpu_time_is_limited_apart_from_the_clock() -> None:
    result = with_sandbox(lambda sandbox: sandbox.run_code("while True: pass"), cpu_seconds=1, wall_seconds=60)
    assert (result.outcome, result.error) == ("timeout", "over 1 s of CPU time")


def test_a_forged_fault_or_timeout_is_not_believed() -> None:
    forged = 'import os\nb = b\'{"end": "fault"}\'\nos.write(3, len(b).to_bytes(4, "big") + b)\nos._exit(99)'
    assert run(forged).outcome == "raised"


def test_a_value_too_large_for_a_message_is_an_output_limit() -> None:
    assert run("def f():\n    return 'x' * 5_000_000", call="f").outcome == "output_limit"


def test_neither_environment_nor_descriptors_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        source = (
            "import os\ndef f():\n    fds = []\n    for n in range(5000):\n        try: os.fstat(n)\n"
            "        except OSError: continue\n        fds.append(n)\n    return [dict(os.environ), fds]"
        )
        assert run(source, call="f").value == [{}, [0, 1, 2, 3]]
    finally:
        os.close(read)
        os.close(write)


@linux
def test_the_zygote_itself_was_started_without_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def work(sandbox: Sandbox) -> bytes:
        assert sandbox._zygote is not None
        try:
            return Path(f"/proc/{sandbox._zygote.pid}/environ").read_bytes()
        except PermissionError:  # closed even to its own user
            return b""

    assert b"secret" not in with_sandbox(work)


def test_children_do_not_share_random_numbers() -> None:
    async def work(sandbox: Sandbox) -> set[Any]:
        source = "import random\ndef f(): return random.random()"
        return {(await sandbox.run_code(source, call="f")).value for _ in range(5)}

    assert len(with_sandbox(work)) == 5


def test_a_fork_bomb_cannot_fork() -> None:
    result = run("import os\nwhile True: os.fork()")
    assert result.outcome == "raised"
    assert "PermissionError" in result.error or "BlockingIOError" in result.error


@linux
@pytest.mark.parametrize("leave", ["", "os.setsid();", "os.setpgid(0, 0);"])
def test_processes_of_a_killed_run_are_killed_even_if_they_left_its_group(leave: str) -> None:
    source = f"""
import os, time
for _ in range(3):
    if os.fork() == 0:
        {leave} os.fork(); time.sleep(600)
time.sleep(600)
"""

    async def work(sandbox: Sandbox) -> set[int]:
        assert (await sandbox.run_code(source)).outcome == "timeout"
        assert sandbox._zygote is not None
        for _ in range(100):
            if not processes(sandbox._zygote.pid):
                break
            await asyncio.sleep(0.02)
        return processes(sandbox._zygote.pid)

    assert with_sandbox(work, wall_seconds=0.5, mode="unsafe") == set()


@linux
def test_two_hundred_runs_at_once_leave_no_process() -> None:
    async def work(sandbox: Sandbox) -> list[CodeResult]:
        source = "def f(n):\n    return n * n"
        runs = [sandbox.run_code(source, call="f", args=[n]) for n in range(200)]
        return list(await asyncio.gather(*runs))

    before = processes(os.getpid())
    results = with_sandbox(work, max_code_runs=16)
    assert [r.value for r in results] == [n * n for n in range(200)]
    assert processes(os.getpid()) <= before


@linux
@pytest.mark.parametrize("started", [True, False])
def test_closing_ends_runs_under_way_and_every_process(started: bool) -> None:
    async def main() -> tuple[CodeResult, set[int]]:
        sandbox = Sandbox(SandboxConfig(wall_seconds=60))
        if started:
            await sandbox.start()
        task = asyncio.create_task(sandbox.run_code("import time; time.sleep(60)"))
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
        task = asyncio.create_task(sandbox.run_code("import time; time.sleep(60)"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sandbox._zygote is not None
        return processes(sandbox._zygote.pid)

    assert with_sandbox(work, wall_seconds=60) == set()


@linux
def test_runs_in_flight_fault_when_the_zygote_dies_and_the_next_ones_work() -> None:
    async def work(sandbox: Sandbox) -> tuple[list[CodeResult], CodeResult]:
        tasks = [asyncio.create_task(sandbox.run_code("import time; time.sleep(20)")) for _ in range(3)]
        await asyncio.sleep(0.4)
        assert sandbox._zygote is not None
        orphans = processes(sandbox._zygote.pid)
        os.kill(sandbox._zygote.pid, signal.SIGKILL)
        ended = list(await asyncio.gather(*tasks))
        after = await sandbox.run_code("def f(): return 1", call="f")
        while any(map(running, orphans)):
            await asyncio.sleep(0.02)
        return ended, after

    ended, after = with_sandbox(work, wall_seconds=30, max_code_runs=4)
    assert [r.outcome for r in ended] == ["fault"] * 3
    assert after.value == 1


def test_only_a_child_that_never_was_set_up_is_a_fault() -> None:
    for confined, outcome in ((False, "fault"), (True, "raised")):
        child: Any = SimpleNamespace(killed_for="", confined=confined)
        assert outcome_of(child, None, Ended(99, 0.0), SandboxConfig())[0] == outcome


def test_a_run_is_a_matter_of_milliseconds() -> None:
    async def work(sandbox: Sandbox) -> float:
        await sandbox.run_code("1")
        return min([(await sandbox.run_code("1")).cpu_seconds for _ in range(10)])

    assert with_sandbox(work) < 0.05


def test_describe_tells_what_a_self_test_found() -> None:
    async def work(sandbox: Sandbox) -> Any:
        return sandbox.describe()

    found = with_sandbox(work)
    assert found.probes["inherited environment"] == "blocked"
    assert found.probes["new processes"] == "blocked"
    assert "rlimits" in found.layers
    assert "not blocked: " in str(found)
    unsafe = with_sandbox(work, mode="unsafe")
    assert unsafe.probes["new processes"] == "open"


def test_wrong_use_is_said() -> None:
    with pytest.raises(SandboxFault, match=r"start\(\) first"):
        Sandbox(SandboxConfig()).describe()


# Verdicts


CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"


def verdict(solution: str, tests: str = CHECK, **kwargs: Any) -> Any:
    return loop.run_until_complete(box.verdict(solution, tests, "f", **kwargs))


@pytest.mark.parametrize("tests", [CHECK, "assert f(2) == 4\nassert f(3) == 9"])
def test_a_right_solution_passes_and_a_wrong_one_fails(tests: str) -> None:
    right = verdict("def f(x): return x * x", tests)
    assert (right.passed, right.outcome, right.mode, right.weak) == (True, "finished", "split", False)
    wrong = verdict("def f(x): return x + 2", tests)
    assert (wrong.passed, wrong.outcome) == (False, "raised")
    assert "AssertionError" in wrong.error


@pytest.mark.parametrize(
    "solution",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "import sys\ndef f(x): sys.exit(0)",
        "import os\ndef f(x): os._exit(0)",
        "import os\ndef f(x): os.kill(os.getpid(), 9)",
        "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit(0)",
        'import os\ndef f(x):\n    b = b\'{"end":"finished"}\'\n    os.write(3, b"\\0\\0\\0\\x12" + b)',
        "def check(candidate): pass\ndef f(x): return 0",
        "pass",
        "def g(x): return x * x",
    ],
)
def test_a_solution_cannot_pass_by_ending_early(solution: str) -> None:
    assert verdict(solution).passed is False


def test_a_solution_may_itself_be_called_check() -> None:
    solution = "def check(x): return x * x"
    verdicts = [loop.run_until_complete(box.verdict(solution, f"assert check(2) == {n}", "check")) for n in (4, 5)]
    assert [v.passed for v in verdicts] == [True, False]


def test_verdicts_tell_time_outs_and_memory_apart() -> None:
    assert verdict("def f(x):\n    while True: pass").outcome == "timeout"
    assert verdict("def f(x): return bytearray(10**9)").outcome == "memory"


def test_the_prelude_comes_before_the_solution() -> None:
    assert verdict("def f(x): return square(x)", prelude="def square(x): return x * x").passed


def test_no_tests_are_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match="no tests for 'f'"):
        verdict("def f(x): return x", "  ")


def test_one_assert_says_what_it_got_and_what_it_expected() -> None:
    async def work(sandbox: Sandbox) -> list[Any]:
        solution = "def f(x):\n    return x + 1"
        asserts = ["assert f(1) == 2", "assert f(1) == 3", "assert f(1) > 5", "assert f('a') == 1"]
        return [await run_assert(sandbox, solution, statement) for statement in asserts]

    right, wrong, other, error = with_sandbox(work)
    assert (right.passed, right.got, right.expected) == (True, "2", "2")
    assert (wrong.passed, wrong.got, wrong.expected) == (False, "2", "3")
    assert (other.passed, other.got) == (False, "")
    assert error.passed is False and error.error.startswith("TypeError")
