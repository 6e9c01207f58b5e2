"""Runs of forked children: a common wall-clock deadline (``Clock``) and the outcome of each (``outcome_of``)."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.files import cut
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.results import KEPT_OF_ERROR, CodeOutcome
from llm_as_judge.sandbox.zygote_client import Child, ExitReport, ZygoteClient

#: A timer that is later than this shows that the host itself was stopped or busy.
_STANDSTILL_SECONDS = 0.1
#: Outcomes that a child may claim for itself.
_CLAIMS = ("finished", "raised", "memory", "output_limit")

#: Talks to the children until one has sent its result.
Converse = Callable[[Sequence[Child], "Clock"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ChildRun:
    """Outcome of one child."""

    outcome: CodeOutcome
    error: str = ""
    end: Mapping[str, Any] = field(default_factory=dict)  # the child's last message; untrusted
    killed_for: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


async def run_children(
    zygote: ZygoteClient, config: SandboxConfig, converse: Converse, count: int, numpy: bool = False
) -> list[ChildRun]:
    """Run ``count`` children, the last with ``numpy``; ``converse`` talks to them within their common deadline.

    Several children are those of a verdict, which has the times of ``config`` for each call of the function.
    """
    begin = time.monotonic()
    children: list[Child] = []
    times = limits.ALL_TESTS if count > 1 else 1
    clock = Clock(config.wall_seconds, children, times)
    total = config.model_copy(update={"cpu_seconds": times * config.cpu_seconds})
    try:
        for number in range(1, count + 1):
            children.append(await zygote.spawn(total, numpy and number == count))
        await converse(children, clock)
        ended = [await child.wait() for child in children]
    except SandboxFault as fault:
        return [ChildRun("fault", str(fault), seconds=time.monotonic() - begin)] * count
    finally:
        clock.stop()
        await asyncio.gather(*(child.aclose() for child in children))
    seconds = time.monotonic() - begin
    runs = []
    for child, report in zip(children, ended, strict=True):
        outcome, error = outcome_of(child, report, total)
        end = child.last if isinstance(child.last, Mapping) else {}
        runs.append(ChildRun(outcome, error, end, child.killed_for, seconds, report.cpu_seconds if report else 0.0))
    return runs


class Clock:
    """Kills the children at their deadline: paused while the host works for them, put off once if it stood still."""

    def __init__(self, seconds: float, children: Sequence[Child], times: int = 1) -> None:
        self._loop = asyncio.get_running_loop()
        self._children = children
        self._left = self._each = seconds
        self._last = self._loop.time() + times * seconds
        self._pauses = 0
        self._run()

    def renew(self) -> None:
        """Give the next call its own time, within that of all."""
        self._timer.cancel()
        self._left = min(self._each, self._last - self._loop.time())
        self._run()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the deadline for the block; may be entered several times at once."""
        if not self._pauses:
            self._left = max(0.0, self._due - self._loop.time())
            self._timer.cancel()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._run()

    def stop(self) -> None:
        self._timer.cancel()

    def _run(self) -> None:
        self._due = self._loop.time() + self._left
        self._timer = self._loop.call_at(self._due, self._expired)

    def _expired(self) -> None:
        late = self._loop.time() - self._due
        if late > _STANDSTILL_SECONDS:
            self._timer = self._loop.call_later(late, self._kill)
        else:
            self._kill()

    def _kill(self) -> None:
        for child in self._children:
            child.kill("timeout")


def outcome_of(child: Child, ended: ExitReport | None, config: SandboxConfig) -> tuple[CodeOutcome, str]:
    """Read outcome and error of a child from its last message and the end of its process."""
    last = child.last
    if ended is None and not isinstance(last, Mapping):
        return "fault", "the zygote died"
    if child.killed_for == "timeout":
        return "timeout", f"no result within {config.wall_seconds:g} s"
    if isinstance(last, Mapping):
        claim = last.get("end")
        if claim in _CLAIMS:
            return claim, cut(as_text(last.get("error")), KEPT_OF_ERROR)
        return "raised", "the run ended with a message that is no result"
    if isinstance(last, frames.FrameTooLong):
        return "output_limit", str(last)
    if last is not None:
        return "raised", f"the run sent an invalid message: {last}"
    assert ended is not None
    status = ended.status
    if not child.confined:
        return "fault", f"the child could not be set up, status {status}"
    if status == -signal.SIGPROF:
        return "timeout", "over the CPU time of one call"
    if status == -signal.SIGXCPU or (status == -signal.SIGKILL and ended.cpu_seconds >= config.cpu_seconds):
        return "timeout", f"over {config.cpu_seconds} s of CPU time"
    if child.killed_for:
        return "raised", "it closed its connection to the host without a result"
    if status == -signal.SIGKILL:
        return "memory", "killed by the system"
    how = f"died of signal {-status}" if status < 0 else f"exited with status {status}"
    return "raised", f"the process {how} before it had a result"


def as_text(value: object) -> str:
    """Return ``value`` of an untrusted message if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""
