"""One run from fork to reaping: children, one deadline for all of them, and what each came to."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.child import Child, Ended
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.results import CodeOutcome
from llm_as_judge.sandbox.zygote import Zygote

#: Talks to the children until one has said its last; returns each one's last frame or what it sent instead.
Converse = Callable[[Sequence[Child]], Awaitable["Sequence[Last]"]]
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
    """Fork ``count`` children and let ``converse`` talk to them until the deadline, which is one for all."""
    begin = time.monotonic()
    children: list[Child] = []
    deadline = _Deadline(config.wall_seconds, children)
    try:
        for _ in range(count):
            child = await zygote.spawn(config)
            children.append(child)
        lasts = await converse(children)
        ended = [await child.end() for child in children]
    except SandboxFault as fault:
        return [Run("fault", str(fault), seconds=time.monotonic() - begin)] * count
    finally:
        deadline.cancel()
        for child in children:
            child.kill("closed")
        for child in children:
            await child.aclose()
    seconds = time.monotonic() - begin
    return [_run(*parts, config, seconds) for parts in zip(children, lasts, ended, strict=True)]


class _Deadline:
    """Kills the children when their time is up. Time in which the host itself stood still is given back, once."""

    def __init__(self, seconds: float, children: Sequence[Child]) -> None:
        self._loop = asyncio.get_running_loop()
        self._children = children
        self._due = self._loop.time() + seconds
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

    def cancel(self) -> None:
        self._timer.cancel()


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
    if child.killed_for == "timeout":
        return "timeout", f"no result within {config.wall_seconds:g} s"
    if isinstance(last, Mapping):
        claim = last.get("end")
        if claim in _CLAIMS:
            return claim, text(last.get("error"))
        return "raised", "the run ended with a message that is no result"
    if isinstance(last, frames.FrameTooLong):
        return "output_limit", str(last)
    if last is not None:
        return "raised", f"the run sent something that is no message: {last}"
    if ended is None:
        return "fault", "the zygote died"
    if not child.confined:
        return "fault", f"the child could not be set up, status {ended.status}"
    if child.killed_for == "lingering":
        return "raised", "it closed its connection to the host without a result"
    if ended.status == -signal.SIGXCPU or (ended.status == -signal.SIGKILL and ended.cpu_seconds >= config.cpu_seconds):
        return "timeout", f"over {config.cpu_seconds} s of CPU time"
    if ended.status == -signal.SIGKILL and not child.killed_for:
        return "memory", "killed by the system"
    if ended.status < 0:
        return "raised", f"the process died of signal {-ended.status}"
    return "raised", f"the process exited with status {ended.status} before it had a result"


def text(value: object) -> str:
    """``value`` of an untrusted frame where a string is wanted."""
    return value if isinstance(value, str) else ""
