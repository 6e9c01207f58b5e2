"""The host's connection to the zygote process, which forks a child for each run; asyncio, no threads.

In mode ``full`` the zygote is started inside bubblewrap: an empty file system, no network, its own process numbers.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.children import ChildHandle, ExitReport
from llm_as_judge.sandbox.guest import frames, landlock
from llm_as_judge.sandbox.guest.confine import layer_names

#: The only part of the package that exists inside the sandbox.
GUEST = Path(landlock.__file__).parent
_ZYGOTE = GUEST / "zygote_process.py"
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
#: More descriptors than the zygote opens itself.
_DESCRIPTORS = 1024
#: Errors of a control connection that is full for now: its buffer, or the number of descriptors in flight.
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/urandom")

log = logging.getLogger(__name__)


class ZygoteClient:
    """A running zygote process, created by ``start``; it is not used again once ``alive`` is False."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, layers: tuple[str, ...], descriptors: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._buffer = b""
        self._children: dict[int, ChildHandle] = {}
        self._count = 0
        self._pending_kills: list[bytes] = []
        self.layers = layers
        self.descriptors = descriptors  # higher than any descriptor number of the process
        self.alive = True
        self._loop.add_reader(control, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, mode: str, without: int = 0) -> ZygoteClient:
        """Start the process with an empty environment; raises ``SandboxFault`` if that fails."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            number = theirs.fileno()  # the same in the new process
            command = [_interpreter(), "-I", "-S", "-E", str(_ZYGOTE), str(number), mode, str(without)]
            try:
                process = subprocess.Popen(
                    wrapped(command) if mode == "full" else command,
                    env={},
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxFault(f"the zygote could not be started: {error}") from None
            undo.callback(_close, process)
            theirs.close()  # so that the end of the process is noticed
            ours.setblocking(False)
            try:
                ready = await asyncio.wait_for(_record(ours), _START_SECONDS)
            except asyncio.TimeoutError:
                raise SandboxFault(f"the zygote did not start within {_START_SECONDS:g} s") from None
            if len(ready) < frames.EVENT.size:
                status = process.wait()
                raise SandboxFault(f"the zygote ended at once: {_last_line(process) or 'no message'} (status {status})")
            undo.pop_all()
        _, landlock_abi, _, _, layers = frames.EVENT.unpack(ready)
        return cls(process, ours, layer_names(layers, landlock_abi), number + _DESCRIPTORS)

    async def spawn(self, config: SandboxConfig) -> ChildHandle:
        """Fork a child that waits for its job on a socket of its own; raises ``SandboxFault`` if that fails."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxFault(f"no connection for another child: {error}; run fewer at once") from None
        ours.setblocking(False)
        self._count += 1
        number = self._count
        limits = (config.cpu_seconds, config.memory_mb << 20, config.open_files, config.output_bytes)
        command = frames.COMMAND.pack(frames.SPAWN, number, *limits, config.frame_bytes)
        child = self._children[number] = ChildHandle(ours, config.frame_bytes, partial(self._kill, number), self._died)
        with theirs:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
            try:
                while True:
                    try:
                        self._control.sendmsg([command], rights)
                        return child
                    except OSError as error:
                        if error.errno not in _FULL or not self.alive:
                            raise
                        await asyncio.sleep(0.002)
            except BaseException as error:
                self._children.pop(number, None)
                ours.close()
                if isinstance(error, OSError):
                    raise SandboxFault(f"the zygote is gone: {error}") from None
                raise

    def _kill(self, number: int) -> None:
        self._pending_kills.append(frames.COMMAND.pack(frames.KILL, number, 0, 0, 0, 0, 0))
        self._send_kills()

    def _send_kills(self) -> None:
        try:
            while self._pending_kills and self.alive:
                self._control.send(self._pending_kills[0])
                del self._pending_kills[0]
        except OSError as error:
            if error.errno in _FULL:
                self._loop.call_later(0.002, self._send_kills)
            else:
                self._died()

    def _readable(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._died()
            return
        self._buffer += data
        while len(self._buffer) >= frames.EVENT.size:
            event, number, status, cpu_seconds, _ = frames.EVENT.unpack(self._buffer[: frames.EVENT.size])
            self._buffer = self._buffer[frames.EVENT.size :]
            if event != frames.EXITED:
                log.error("the zygote %d sent an invalid record: %r", self._process.pid, event)
                self._died()
                return
            child = self._children.pop(number, None)
            if child is not None and not child.ended.done():
                child.ended.set_result(ExitReport(status, cpu_seconds))

    def _died(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._control.close()
        for child in self._children.values():
            if not child.ended.done():
                child.ended.set_result(None)
        self._children.clear()

    async def aclose(self) -> None:
        """Close the control connection, upon which the zygote kills its children and exits; reap it."""
        self._died()
        deadline = self._loop.time() + _STOP_SECONDS
        while self._process.poll() is None and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        if self._process.poll() is None:
            log.warning("the zygote %d did not stop; killing it", self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
        if said := _last_line(self._process):
            log.error("the zygote %d wrote: %s", self._process.pid, said)
        _close(self._process)


def wrapped(command: Sequence[str]) -> list[str]:
    """``command`` (an interpreter and its arguments) inside bubblewrap; ``SandboxFault`` without bubblewrap.

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
    for path in [*_SYSTEM, *standard, command[0], *own, str(GUEST)]:
        if not any(path == outer or path.startswith(f"{outer}/") for outer in bound):
            options += ["--ro-bind-try", path, path]
            bound.append(path)
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    return [program, *options, "--remount-ro", "/", "--chdir", "/", *command]


def _interpreter() -> str:
    """The interpreter itself rather than the link to it in a virtual environment, which is not needed."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


async def _record(control: socket.socket) -> bytes:
    """The first record from the zygote; shorter if it ended before."""
    data = b""
    while len(data) < frames.EVENT.size:
        part = await asyncio.get_running_loop().sock_recv(control, frames.EVENT.size - len(data))
        if not part:
            break
        data += part
    return data


def _close(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _last_line(process: subprocess.Popen[bytes]) -> str:
    """The last line that the process has written to its standard error so far."""
    if process.stderr is None or process.stderr.closed:
        return ""
    os.set_blocking(process.stderr.fileno(), False)
    lines = (process.stderr.read() or b"").decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
