"""Runs of forked children, from fork to reaping: messages, one deadline for all children of a run, the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.results import KEPT_OF_ERROR, CodeOutcome, cut

if TYPE_CHECKING:
    from llm_as_judge.sandbox.zygote_client import ZygoteClient

#: Time for a child to exit after its result or after it closed its connection.
_GRACE_SECONDS = 0.5
#: Time for the zygote to report that a killed child is gone; after that it is considered dead.
_SILENCE_SECONDS = 30.0
#: A timer that is later than this shows that the host itself was stopped or busy.
_STANDSTILL_SECONDS = 0.1
#: Outcomes that a child may claim for itself.
_CLAIMS = ("finished", "raised", "memory", "output_limit")


@dataclass(frozen=True, slots=True)
class ExitReport:
    """The end of a child's process, as the zygote saw it."""

    status: int  # exit status, or minus the signal's number
    cpu_seconds: float


class ChildHandle:
    """One forked child; ``ended`` resolves to None if the zygote died before it could report."""

    def __init__(
        self, sock: socket.socket, frame_bytes: int, kill: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kill = kill
        self._give_up = give_up
        self._sock = sock
        self._frames = frames.Decoder(frame_bytes)
        self._sending = asyncio.Lock()
        self.ended: asyncio.Future[ExitReport | None] = self._loop.create_future()
        self.ended.add_done_callback(self._abandoned)
        self.confined = False  # set up; whatever happens afterwards is the code's doing
        self.killed_for = ""

    def _abandoned(self, ended: asyncio.Future[ExitReport | None]) -> None:
        """Without a zygote the other end may never be closed."""
        if ended.result() is None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a frame; ``receive`` notices a child that is gone."""
        data = frames.encode(message)
        async with self._sending:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._sock, data)

    async def receive(self, values: int = frames.VALUES) -> dict[str, Any] | None:
        """The next frame, None at the end; raises ``FrameError`` for an invalid frame or one over the limits."""
        while (message := self._frames.next(values)) is None:
            try:
                data = await self._loop.sock_recv(self._sock, 1 << 16)
            except OSError:
                data = b""
            if not data:
                return None
            if not self.confined:
                self.confined = True
                data = data[len(frames.CONFINED) :]
            self._frames.feed(data)
        return message

    async def receive_last(self) -> LastFrame:
        """The next frame, or the error in its place."""
        try:
            return await self.receive()
        except frames.FrameError as error:
            return error

    def kill(self, reason: str) -> None:
        """End the child and its descendants; the first reason is kept."""
        if self.killed_for or self.ended.done():
            return
        self.killed_for = reason
        self._kill()
        silence = self._loop.call_later(_SILENCE_SECONDS, self._give_up)
        self.ended.add_done_callback(lambda ended: silence.cancel())

    async def end(self) -> ExitReport | None:
        """Wait for the process to exit; kill it after a grace period."""
        if not self.ended.done():
            linger = self._loop.call_later(_GRACE_SECONDS, self.kill, "lingering")
            try:
                await asyncio.shield(self.ended)
            finally:
                linger.cancel()
        return self.ended.result()

    async def aclose(self) -> None:
        self.kill("closed")
        try:
            if not self.ended.done():
                await asyncio.shield(self.ended)
        finally:
            self._sock.close()


LastFrame = Mapping[str, Any] | frames.FrameError | None
#: Talks to the children until one has sent its result; returns the last frame of each, or the error in its place.
Converse = Callable[[Sequence[ChildHandle], "Clock"], Awaitable[Sequence[LastFrame]]]


@dataclass(frozen=True, slots=True)
class ChildRun:
    """Outcome of one child."""

    outcome: CodeOutcome
    error: str = ""
    end: Mapping[str, Any] = field(default_factory=dict)  # the child's last frame, not to be trusted
    killed_for: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


async def run_children(
    zygote: ZygoteClient, config: SandboxConfig, converse: Converse, count: int = 1
) -> list[ChildRun]:
    """Fork ``count`` children and let ``converse`` talk to them within their common deadline."""
    begin = time.monotonic()
    children: list[ChildHandle] = []
    clock = Clock(config.wall_seconds, children)
    try:
        for _ in range(count):
            child = await zygote.spawn(config)
            children.append(child)
        lasts = await converse(children, clock)
        ended = [await child.end() for child in children]
    except SandboxFault as fault:
        return [ChildRun("fault", str(fault), seconds=time.monotonic() - begin)] * count
    finally:
        clock.stop()
        for child in children:
            child.kill("closed")
        for child in children:
            await child.aclose()
    seconds = time.monotonic() - begin
    runs = []
    for child, last, report in zip(children, lasts, ended, strict=True):
        outcome, error = outcome_of(child, last, report, config)
        end = last if isinstance(last, Mapping) else {}
        runs.append(ChildRun(outcome, error, end, child.killed_for, seconds, report.cpu_seconds if report else 0.0))
    return runs


class Clock:
    """Kills the children at their deadline.

    It is paused while the host works for them, so that a slow operator does not count. Time during which the host
    itself stood still is given back once.
    """

    def __init__(self, seconds: float, children: Sequence[ChildHandle]) -> None:
        self._loop = asyncio.get_running_loop()
        self._children = children
        self._left = seconds
        self._pauses = 0
        self._run()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """May be entered several times at once."""
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


def outcome_of(
    child: ChildHandle, last: LastFrame, ended: ExitReport | None, config: SandboxConfig
) -> tuple[CodeOutcome, str]:
    """Outcome and error of a child, from its last frame and the end of its process."""
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
        return "raised", f"the run sent an invalid message: {last}"
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
    """``value`` of an untrusted frame if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""
