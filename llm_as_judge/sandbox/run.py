"""One run from fork to reaping: children, one deadline for all of them, and what each came to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.child import Child, Ended
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.results import KEPT_OF_ERROR, CodeOutcome, cut
from llm_as_judge.sandbox.zygote import Zygote

#: Talks to the children until one has said its last; returns each one's last frame or what it sent instead.
Converse = Callable[[Sequence[Child], "Clock"], Awaitable["Sequence[Last]"]]
Last = Mapping[str, Any] | frames.FrameError | None

_STANDSTILL_SECONDS = 0.1

#: Outcomes a child may claim for itself.
_CLAIMS = ("finished", "raised", "memory", "output_limit")


@dataclass(frozen=True, slots=True)
class Run:
    """What one child came to."""

    outcome: CodeOutcome
    error: str = ""
    end: Mapping[str, Any] = field(default_factory=dict)  # the child's last frame, not to be trusted
    killed_for: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


async def run_children(zygote: Zygote, config: SandboxConfig, converse: Converse, count: int = 1) -> list[Run]:
    """Fork ``count`` children and let ``converse`` talk to them until their time is up, which is one for all."""
    begin = time.monotonic()
    children: list[Child] = []
    clock = Clock(config.wall_seconds, children)
    try:
        for _ in range(count):
            child = await zygote.spawn(config)
            children.append(child)
        lasts = await converse(children, clock)
        ended = [await child.end() for child in children]
    except SandboxFault as fault:
        return [Run("fault", str(fault), seconds=time.monotonic() - begin)] * count
    finally:
        clock.stop()
        for child in children:
            child.kill("closed")
        for child in children:
            await child.aclose()
    seconds = time.monotonic() - begin
    return [_run(*parts, config, seconds) for parts in zip(children, lasts, ended, strict=True)]


class Clock:
    """Kills the children when their time is up.

    It stands still while the host is at work for them: an operator that takes long is no fault of theirs. Time in which
    the host itself stood still is given back, once.
    """

    def __init__(self, seconds: float, children: Sequence[Child]) -> None:
        self._loop = asyncio.get_running_loop()
        self._children = children
        self._left = seconds
        self._works = 0
        self._run()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """While entered, any number of times at once."""
        if not self._works:
            self._left = max(0.0, self._due - self._loop.time())
            self._timer.cancel()
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1
            if not self._works:
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


async def last_frame(child: Child) -> Last:
    """The next frame of a child that is to send no other."""
    try:
        return await child.receive()
    except frames.FrameError as error:
        return error


def _run(child: Child, last: Last, ended: Ended | None, config: SandboxConfig, seconds: float) -> Run:
    outcome, error = outcome_of(child, last, ended, config)
    end = last if isinstance(last, Mapping) else {}
    return Run(outcome, error, end, child.killed_for, seconds, ended.cpu_seconds if ended else 0.0)


def outcome_of(child: Child, last: Last, ended: Ended | None, config: SandboxConfig) -> tuple[CodeOutcome, str]:
    """Outcome and error of a child from everything seen of it."""
    if ended is None and not isinstance(last, Mapping):
        return "fault", "the zygote died"
    status, cpu_seconds = (ended.status, ended.cpu_seconds) if ended else (0, 0.0)
    if child.killed_for == "timeout":
        return "timeout", f"no result within {config.wall_seconds:g} s"
    if isinstance(last, Mapping):
        claim = last.get("end")
        if claim in _CLAIMS:
            return claim, cut(text(last.get("error")), KEPT_OF_ERROR)
        return "raised", "the run ended with a message that is no result"
    if isinstance(last, frames.FrameTooLong):
        return "output_limit", str(last)
    if last is not None:
        return "raised", f"the run sent something that is no message: {last}"
    if not child.confined:
        return "fault", f"the child could not be set up, status {status}"
    if child.killed_for == "lingering":
        return "raised", "it closed its connection to the host without a result"
    if status == -signal.SIGXCPU or (status == -signal.SIGKILL and cpu_seconds >= config.cpu_seconds):
        return "timeout", f"over {config.cpu_seconds} s of CPU time"
    if status == -signal.SIGKILL and not child.killed_for:
        return "memory", "killed by the system"
    if status < 0:
        return "raised", f"the process died of signal {-status}"
    return "raised", f"the process exited with status {status} before it had a result"


def text(value: object) -> str:
    """``value`` of an untrusted frame where a string is wanted."""
    return value if isinstance(value, str) else ""
