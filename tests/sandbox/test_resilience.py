"""The sandbox under load and after failures: no run is lost, nothing is left behind, and memory is bounded."""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from helpers.processes import processes, program, running
from helpers.tables import tables
from shared_box import in_sandbox

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.sandbox.host import Sandbox

TABLES = tables(__file__)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
T = TypeVar("T")
SQUARE = "def f(n):\n    return n * n"
SLEEPS = "import time; time.sleep(60)"


def left_behind() -> set[str]:
    """Descendants of this process, and files of the sandbox or its users in world-writable folders."""
    left = {f"process {pid}" for pid in processes(os.getpid())}
    for folder in map(Path, ("/tmp", "/var/tmp", "/dev/shm")):
        for entry in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if "sandbox-probe" in entry.name or 60_000 <= entry.stat().st_uid < 65_000:
                    left.add(str(entry))
    return left


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def clean(work: Callable[[Sandbox], Awaitable[T]], max_code_runs: int | None = None, **settings: Any) -> T:
    """``work`` in a sandbox; fails if it leaves anything behind, skips if mode ``full`` does not work here."""
    before, open_before = left_behind(), descriptors()
    try:
        result = in_sandbox(work, max_code_runs=max_code_runs, **settings)
    except ConfigError as error:
        if settings.get("mode") == "full":
            pytest.skip(str(error))
        raise
    assert left_behind() <= before and descriptors() <= open_before
    return result


def zygote_of(sandbox: Sandbox) -> int:
    assert sandbox._zygote is not None
    return sandbox._zygote.pid


async def all_ended(pids: set[int]) -> None:
    for _ in range(200):
        if not any(map(running, pids)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"still running: {pids}")


def test_a_standstill_times_nothing_out_and_killed_runs_leave_no_process() -> None:
    async def work(sandbox: Sandbox) -> str:
        task = asyncio.create_task(sandbox.run_code("print(1)"))
        await asyncio.sleep(0.05)
        time.sleep(1.5)
        return (await task).outcome

    assert clean(work, wall_seconds=1) == "finished"

    async def work(sandbox: Sandbox) -> None:
        for leave in ("", "os.setsid();", "os.setpgid(0, 0);"):
            forks = f"import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        {leave} os.fork(); "
            assert (await sandbox.run_code(f"{forks}time.sleep(600)\ntime.sleep(600)")).outcome == "timeout"
            await all_ended(processes(zygote_of(sandbox)))

    clean(work, wall_seconds=0.5, mode="unsafe")


def test_a_full_control_connection_delays_runs_and_kills_but_loses_none() -> None:
    async def work(sandbox: Sandbox) -> list[str]:
        assert sandbox._zygote is not None
        sandbox._zygote._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        stopped = [zygote_of(sandbox), *processes(zygote_of(sandbox))]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        tasks = [asyncio.create_task(sandbox.run_code(SQUARE, call="f", args=[n])) for n in range(100)]
        cancelled = [asyncio.create_task(sandbox.run_code(SLEEPS)) for _ in range(20)]
        await asyncio.sleep(0.3)
        for task in cancelled:
            task.cancel()
        assert not any(task.done() for task in tasks)
        await asyncio.sleep(0.1)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        runs = await asyncio.gather(*tasks)
        await asyncio.gather(*cancelled, return_exceptions=True)
        return [run.outcome for run in runs if run.value is not None]

    assert clean(work, 120, wall_seconds=60, mode="standard") == ["finished"] * 100


@pytest.mark.parametrize("mode", ["standard", "full"])
def test_the_children_of_a_killed_zygote_end_and_another_one_is_started(mode: str) -> None:
    async def work(sandbox: Sandbox) -> tuple[list[str], Any]:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(sandbox.run_code(SLEEPS)) for _ in range(3)]
        tasks += [asyncio.create_task(sandbox.verdict(SLEEPS, "assert f(1) == 1", "f"))]
        await asyncio.sleep(0.5)
        family = processes(zygote_of(sandbox))
        assert len(family) >= 5
        os.kill(zygote_of(sandbox), signal.SIGKILL)
        runs = await asyncio.gather(*tasks)
        await all_ended(family)
        return [run.outcome for run in runs], (await sandbox.run_code(SQUARE, call="f", args=[3])).value

    assert clean(work, 8, wall_seconds=30, mode=mode) == (["fault"] * 4, 9)


def test_closing_or_cancelling_ends_runs_under_way() -> None:
    async def work(sandbox: Sandbox) -> None:
        cancelled = asyncio.create_task(sandbox.run_code(SLEEPS))
        await asyncio.sleep(0.3)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await all_ended(processes(zygote_of(sandbox)))
        closed = asyncio.create_task(sandbox.run_code(SLEEPS))
        await asyncio.sleep(0.1)
        await sandbox.aclose()
        assert (await closed).outcome == "fault"
        starting = Sandbox(SandboxConfig())
        closed = asyncio.create_task(starting.run_code(SLEEPS))
        await asyncio.sleep(0.05)
        await starting.aclose()
        assert (await closed).outcome == "fault"

    clean(work, wall_seconds=60, mode="standard")


def test_an_interrupted_event_loop_ends_while_code_runs() -> None:
    """It cancels all tasks at once: the runs, which wait for the end of their children, and the watcher of those."""

    async def work(sandbox: Sandbox) -> None:
        own = asyncio.current_task()
        runs = [asyncio.create_task(sandbox.run_code(SLEEPS)) for _ in range(4)]
        await asyncio.sleep(0.5)
        cancelled = asyncio.all_tasks() - {own}
        assert len(cancelled) > len(runs)
        for task in cancelled:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*cancelled, return_exceptions=True), 10)

    clean(work, wall_seconds=60, mode="standard")


HELD = TABLES["HELD"]


@pytest.mark.parametrize("mode", ["standard", "full"])
@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_child_has_only_its_own_descriptors_however_many_the_host_has_open(mode: str, count: int) -> None:
    with many_open(count):
        assert clean(lambda sandbox: sandbox.run_code(HELD, call="f"), mode=mode).value == [0, 1, 2, 3]


@pytest.fixture
def change_zygote(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Changes the code of the zygotes that are started from then on."""

    def change(code: str) -> None:
        (tmp_path / "zygote.py").write_text(
            f"import sys\nsys.path.append({str(root)!r})\n"
            "from llm_as_judge.sandbox.guest import confine, landlock, seccomp\n"
            "from llm_as_judge.sandbox.guest import zygote_process as zygote\n"
            f"{code}\nzygote.main()\n"
        )
        monkeypatch.setattr("llm_as_judge.sandbox.zygote_client._ZYGOTE", tmp_path / "zygote.py")

    return change


def test_the_self_test_finds_a_descriptor_that_is_left_open(change_zygote: Callable[[str], None]) -> None:
    change_zygote("confine.close_others = lambda *kept: None")
    for count in (0, 3000):
        with many_open(count), pytest.raises(ConfigError, match=r"able to do: .*inherited descriptors"):
            clean(_described, mode="standard")


@contextlib.contextmanager
def many_open(count: int) -> Iterator[None]:
    """Open ``count`` more descriptors in this process; skips if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 200:
        pytest.skip(f"no more than {hard} descriptors may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    try:
        yield
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_working_mode_names_the_cure(monkeypatch: pytest.MonkeyPatch, change_zygote: Callable[[str], None]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"bubblewrap is not installed.*Cure: install bubblewrap"):
        asyncio.run(Sandbox(SandboxConfig(mode="full")).start())
    found = clean(_described)
    assert found.mode in ("standard", "no-open") and "bubblewrap is not installed" in found.refused["full"]
    assert found.probes["new processes"] == "blocked" and "rlimits" in found.layers and "not blocked: " in str(found)
    assert clean(_described, mode="unsafe").probes["new processes"] == "open"
    # As on a machine without Landlock and seccomp: the probes succeed, so no mode works.
    change_zygote(
        "landlock.abi = lambda: 0\nseccomp.machine = lambda: None\n"
        "if sys.argv[2] != 'unsafe': sys.argv[3] = str(confine.NO_PROCESSES)"
    )
    with pytest.raises(ConfigError, match=r"no isolation on this machine.*new processes.*sandbox\.mode=unsafe"):
        asyncio.run(Sandbox(SandboxConfig()).start())


async def _described(sandbox: Sandbox) -> Any:
    return sandbox.describe()


@pytest.mark.slow
def test_64_workflows_at_once_make_the_host_hold_no_more_than_is_stated() -> None:
    done = program(sys.executable, "-c", TABLES["SCRIPT"], TABLES["HEAVY"])
    assert done.returncode == 0, done.stderr[-1000:]
    calls, megabytes = json.loads(done.stdout)
    assert calls == 64 * 24
    # 4 MB each for its calls and for one message; the documented limit is 12 MB per workflow.
    assert 64 * 3 < megabytes < 64 * 12, megabytes
