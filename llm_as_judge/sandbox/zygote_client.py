"""The host's connections to the zygote process and to the children that it forks; asyncio, no threads.

In mode ``full`` the zygote is started inside bubblewrap: an empty file system, no network, its own process numbers.
"""

import array
import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.guest import frames, landlock
from llm_as_judge.sandbox.guest.confine import layer_names

#: The only part of the package that exists inside the sandbox.
GUEST = Path(landlock.__file__).parent
_ZYGOTE = GUEST / "zygote_process.py"
_START_SECONDS, _STOP_SECONDS = 60.0, 5.0
#: Time for a child to exit after its result, or after it closed its connection.
_GRACE_SECONDS = 0.5
#: More descriptors than the zygote opens itself.
_DESCRIPTORS = 1024
#: Errors of a control connection that is full for now: its buffer, or the number of descriptors in flight.
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/urandom")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExitReport:
    """The end of a child's process, as the zygote saw it."""

    status: int  # exit status, or minus the signal's number
    cpu_seconds: float


class Child:
    """The connection to one forked child; ``ended`` resolves to None if the zygote died before it could report.

    ``last`` is the last message, the error of an invalid one, or None if the connection ended after it.
    """

    def __init__(self, sock: socket.socket, kill: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._kill = kill
        self._sock = sock
        self._frames = frames.Decoder(limits.FRAME_BYTES)
        self._sending = asyncio.Lock()
        self.ended: asyncio.Future[ExitReport | None] = self._loop.create_future()
        self.last: Mapping[str, Any] | frames.FrameError | None = None
        self.confined = False  # set up; whatever happens afterwards is the code's doing
        self.killed_for = ""

    def allow(self, message_bytes: int) -> None:
        """Accept longer messages, of a child that runs no foreign code."""
        self._frames = frames.Decoder(message_bytes)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a frame; ``receive`` notices a child that is gone."""
        data = frames.encode(message)
        async with self._sending:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._sock, data)

    async def receive(self, values: int = frames.VALUES) -> dict[str, Any] | None:
        """Receive the next message of at most ``values`` values; None after the end and for an invalid one."""
        self.last = None
        try:
            while (message := self._frames.next(values)) is None:
                data = await self._loop.sock_recv(self._sock, 1 << 16)
                if not data:
                    return None
                if not self.confined:
                    self.confined = True
                    data = data[len(frames.CONFINED) :]
                self._frames.feed(data)
        except OSError:
            return None
        except frames.FrameError as error:
            self.last = error
            return None
        self.last = message
        return message

    def kill(self, reason: str) -> None:
        """End the child and its descendants; the first reason is kept."""
        if not (self.killed_for or self.ended.done()):
            self.killed_for = reason
            self._kill()

    def end(self, report: ExitReport | None) -> None:
        """Note the end of the process, or of the zygote, after which nothing else may close the connection."""
        if not self.ended.done():
            self.ended.set_result(report)
        if report is None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    async def wait(self) -> ExitReport | None:
        """Wait for the process to exit; kill it after a grace period."""
        await asyncio.wait([self.ended], timeout=_GRACE_SECONDS)
        self.kill("closed")
        await asyncio.wait([self.ended])
        return self.ended.result()

    async def aclose(self) -> None:
        self.kill("closed")
        try:
            await asyncio.wait([self.ended])
        finally:
            self._sock.close()


class ZygoteClient:
    """A running zygote process, created by ``start``; it is not used again once ``alive`` is False."""

    def __init__(
        self, process: Popen[bytes], control: socket.socket, layers: tuple[str, ...], descriptors: int
    ) -> None:
        self._process = process
        self._control = control
        self._children: dict[int, Child] = {}
        self._count = 0
        self.layers = layers
        self.descriptors = descriptors  # higher than any descriptor number of the process
        self.alive = True
        self._tasks = {asyncio.create_task(self._watch())}

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, mode: str, without: int = 0) -> "ZygoteClient":
        """Start the process with an empty environment; raises ``SandboxFault`` if that fails."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            fd = theirs.fileno()  # the same in the new process
            # The interpreter itself: the link to it in a virtual environment is not needed.
            python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
            command = [python, "-I", "-S", "-E", str(_ZYGOTE), str(fd), mode, str(without), numpy_folder()]
            try:
                command = wrapped(command) if mode == "full" else command
                process = Popen(
                    command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={}, pass_fds=[fd], start_new_session=True
                )
            except OSError as error:
                raise SandboxFault(f"the zygote could not be started: {error}") from None
            undo.callback(_close, process)
            theirs.close()  # so that the end of the process is noticed
            ours.setblocking(False)
            try:
                loop = asyncio.get_running_loop()
                ready = await asyncio.wait_for(loop.sock_recv(ours, frames.EVENT.size), _START_SECONDS)
            except asyncio.TimeoutError:
                raise SandboxFault(f"the zygote did not start within {_START_SECONDS:g} s") from None
            if not ready:
                status = process.wait()
                raise SandboxFault(f"the zygote ended at once: {_last_line(process) or 'no message'} (status {status})")
            undo.pop_all()
        _, landlock_abi, _, _, layers = frames.EVENT.unpack(ready)
        return cls(process, ours, layer_names(layers, landlock_abi), fd + _DESCRIPTORS)

    async def spawn(self, config: SandboxConfig, numpy: bool = False) -> Child:
        """Fork a child that waits for its job, with numpy if it is installed; raises ``SandboxFault`` if that fails."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxFault(f"no connection for another child: {error}; run fewer at once") from None
        ours.setblocking(False)
        self._count += 1
        number = self._count
        run = (config.cpu_seconds, config.memory_mb << 20, limits.OPEN_FILES, limits.OUTPUT_BYTES, limits.FRAME_BYTES)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            await self._send(frames.COMMAND.pack(frames.SPAWN, number, *run, numpy), theirs.fileno())
            if not self.alive:
                raise SandboxFault("the zygote is gone")
            undo.pop_all()
        child = self._children[number] = Child(ours, partial(self._kill, number))
        return child

    def _kill(self, number: int) -> None:
        task = asyncio.create_task(self._send(frames.COMMAND.pack(frames.KILL, number, 0, 0, 0, 0, 0, False)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, command: bytes, *descriptors: int) -> None:
        """Send one record as soon as the connection has room for it."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        while self.alive:
            try:
                self._control.sendmsg([command], rights)
                return
            except OSError as error:
                if error.errno in _FULL:
                    await asyncio.sleep(0.002)
                else:
                    self._died()

    async def _watch(self) -> None:
        """Read the ends of children until the zygote dies. Without a watcher, no run waits for the end of its child."""
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while record := await loop.sock_recv(self._control, frames.EVENT.size):  # written in one piece
                    _, number, status, cpu_seconds, _ = frames.EVENT.unpack(record)
                    self._children.pop(number).end(ExitReport(status, cpu_seconds))
        finally:  # an interrupted event loop cancels all tasks at once
            self._died()

    def _died(self) -> None:
        self.alive = False
        while self._children:
            self._children.popitem()[1].end(None)

    async def aclose(self) -> None:
        """Close the control connection, upon which the zygote kills its children and exits; reap it."""
        self._died()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._control.close()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
        except TimeoutExpired:
            log.warning("the zygote %d did not stop; killing it", self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, 9)
        if said := _last_line(self._process):
            log.error("the zygote %d wrote: %s", self.pid, said)
        _close(self._process)


def wrapped(command: Sequence[str]) -> list[str]:
    """Wrap ``command`` (an interpreter and its arguments) in bubblewrap; ``SandboxFault`` without bubblewrap.

    The file system inside holds only what the interpreter needs, read-only. An unprivileged user gets a user namespace;
    root needs none and keeps the three capabilities that the zygote uses on its children.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxFault("bubblewrap is not installed (the package bubblewrap has the command bwrap)")
    options = ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--unshare-cgroup-try"]
    options += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            options += ["--cap-add", capability]
    else:
        options += ["--unshare-user"]
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *landlock.own_libraries()]
    own = [str(folder / "__init__.py") for folder in GUEST.parents[:2]]
    bound: list[str] = []
    parts = [f"{folder}/{name}" for folder in {numpy_folder()} - {""} for name in ("numpy", "numpy.libs")]
    for path in [*_SYSTEM, *standard, *parts, command[0], *own, str(GUEST)]:
        if not any(path == outer or path.startswith(f"{outer}/") for outer in bound):
            options += ["--ro-bind-try", path, path]
            bound.append(path)
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    return [program, *options, "--remount-ro", "/", "--chdir", "/", *command]


@cache
def numpy_folder() -> str:
    """Find the folder that holds numpy; empty if it is not installed."""
    found = find_spec("numpy")
    return str(Path(found.origin).parents[1]) if found is not None and found.origin else ""


def _close(process: Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _last_line(process: Popen[bytes]) -> str:
    """Read the last line that the process has written to its standard error so far."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    lines = (process.stderr.read() or b"").decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
