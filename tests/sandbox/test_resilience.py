"""The sandbox under load and after failures: no run is lost, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
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
from helpers.processes import processes, running

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.sandbox.host import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
T = TypeVar("T")
SQUARE = "def f(n):\n    return n * n"


def left_behind() -> set[str]:
    """Descendants of this process, and files of the sandbox or its users in world-writable folders."""
    left = {f"process {pid}" for pid in processes(os.getpid())}
    for folder in map(Path, ("/tmp", "/var/tmp", "/dev/shm")):
        for entry in folder.iterdir() if folder.is_dir() else ():
            try:
                if "sandbox-probe" in entry.name or 60_000 <= entry.stat().st_uid < 65_000:
                    left.add(str(entry))
            except OSError:
                continue
    return left


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def clean(
    work: Callable[[Sandbox], Awaitable[T]], config: SandboxConfig | None = None, max_code_runs: int | None = None
) -> T:
    """``work`` in a sandbox; fails if it leaves anything behind."""

    async def main() -> T:
        async with Sandbox(config, max_code_runs=max_code_runs) as sandbox:
            return await work(sandbox)

    config = config or SandboxConfig()
    before, open_before = left_behind(), descriptors()
    try:
        result = asyncio.run(main())
    except ConfigError as error:
        if config.mode == "full":
            pytest.skip(str(error))
        raise
    assert left_behind() <= before
    assert descriptors() <= open_before
    return result


def test_runs_of_many_kinds_at_once_each_have_their_outcome() -> None:
    kinds = [
        ("print(1)", "finished"), ("1 / 0", "raised"), ("import os; os._exit(1)", "raised"),
        ("x = bytearray(10**9)", "memory"), ("print('x' * 10**6)", "output_limit"), ("def f(: 1", "raised"),
    ]  # fmt: skip

    async def work(sandbox: Sandbox) -> list[str]:
        runs = await asyncio.gather(*(sandbox.run_code(kinds[n % len(kinds)][0]) for n in range(120)))
        return [run.outcome for run in runs]

    config = SandboxConfig(wall_seconds=60, memory_mb=256, output_bytes=10_000)
    assert clean(work, config) == [kinds[n % len(kinds)][1] for n in range(120)]


def test_a_standstill_of_the_host_does_not_time_a_run_out() -> None:
    async def work(sandbox: Sandbox) -> str:
        task = asyncio.create_task(sandbox.run_code("print(1)"))
        await asyncio.sleep(0.05)
        time.sleep(1.5)
        return (await task).outcome

    assert clean(work, SandboxConfig(wall_seconds=1)) == "finished"


@pytest.mark.parametrize("mode", ["standard", "full"])
def test_a_full_control_connection_delays_runs_and_kills_but_loses_none(mode: Any) -> None:
    async def work(sandbox: Sandbox) -> list[str]:
        zygote = sandbox._zygote
        assert zygote is not None
        zygote._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        stopped = [zygote.pid, *processes(zygote.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        tasks = [asyncio.create_task(sandbox.run_code(SQUARE, call="f", args=[n])) for n in range(100)]
        cancelled = [asyncio.create_task(sandbox.run_code("import time; time.sleep(60)")) for _ in range(20)]
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

    assert clean(work, SandboxConfig(wall_seconds=60, mode=mode), max_code_runs=120) == ["finished"] * 100


@pytest.mark.parametrize("mode", ["standard", "full"])
def test_the_children_of_a_killed_zygote_end_and_another_one_is_started(mode: Any) -> None:
    async def work(sandbox: Sandbox) -> tuple[list[str], Any]:
        sleeper = "import time; time.sleep(60)"
        tasks = [asyncio.create_task(sandbox.run_code(sleeper)) for _ in range(3)]
        tasks += [asyncio.create_task(sandbox.verdict(f"{sleeper}", "assert f(1) == 1", "f"))]  # type: ignore[list-item]
        await asyncio.sleep(0.5)
        assert sandbox._zygote is not None
        family = processes(sandbox._zygote.pid)
        assert len(family) >= 5
        os.kill(sandbox._zygote.pid, signal.SIGKILL)
        runs = await asyncio.gather(*tasks)
        for _ in range(200):
            if not any(map(running, family)):
                break
            await asyncio.sleep(0.02)
        assert not any(map(running, family))
        return [run.outcome for run in runs], (await sandbox.run_code(SQUARE, call="f", args=[3])).value

    assert clean(work, SandboxConfig(wall_seconds=30, mode=mode), max_code_runs=8) == (["fault"] * 4, 9)


HELD = """
import os
def f():
    held = []
    for number in range(70_000):
        try:
            os.fstat(number)
        except OSError:
            continue
        held.append(number)
    return held
"""


@pytest.mark.parametrize("mode", ["standard", "full"])
@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_child_has_only_its_own_descriptors_however_many_the_host_has_open(mode: Any, count: int) -> None:
    with many_open(count):
        found = clean(_described, SandboxConfig(mode=mode))
        assert found.probes["inherited descriptors"] == "blocked"
        assert clean(lambda sandbox: sandbox.run_code(HELD, call="f"), SandboxConfig(mode=mode)).value == [0, 1, 2, 3]


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
            clean(_described, SandboxConfig(mode="standard"))


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


def test_a_run_cannot_change_the_next() -> None:
    async def work(sandbox: Sandbox) -> tuple[Any, Any]:
        await sandbox.run_code("import builtins, json, sys\nbuiltins.planted = json.planted = sys.planted = 1")
        source = "import builtins, json, sys\ndef f(): return [hasattr(m, 'planted') for m in (builtins, json, sys)]"
        first = await sandbox.run_code(source, call="f")
        return first.outcome, first.value

    assert clean(work) == ("finished", [False, False, False])


def test_if_no_mode_works_the_sandbox_refuses_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, change_zygote: Callable[[str], None]
) -> None:
    async def nothing(sandbox: Sandbox) -> None:
        return None

    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"bubblewrap is not installed.*Cure: install bubblewrap"):
        asyncio.run(Sandbox(SandboxConfig(mode="full")).start())
    found = clean(_described)
    assert found.mode in ("standard", "no-open") and "bubblewrap is not installed" in found.refused["full"]
    # As on a machine without Landlock and seccomp: the probes succeed, so no mode works.
    change_zygote(
        "landlock.abi = lambda: 0\nseccomp.machine = lambda: None\n"
        "if sys.argv[2] != 'unsafe': sys.argv[3] = str(confine.NO_PROCESSES)"
    )
    with pytest.raises(ConfigError, match=r"no isolation on this machine.*new processes.*sandbox\.mode=unsafe"):
        asyncio.run(Sandbox(SandboxConfig()).start())


async def _described(sandbox: Sandbox) -> Any:
    return sandbox.describe()
