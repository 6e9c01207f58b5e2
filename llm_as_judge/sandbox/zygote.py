"""The host's handle on the zygote process, which forks a child for each run; asyncio, no threads."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
from functools import partial
from typing import IO

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.bubblewrap import GUEST, wrapped
from llm_as_judge.sandbox.child import Child, Ended
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.guest.confine import layer_names

_ZYGOTE = GUEST / "zygote.py"
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
#: More than the zygote opens itself.
_DESCRIPTORS = 1024

#: The control connection takes no more for now: its buffer is full, or too many descriptors are under way.
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)

log = logging.getLogger(__name__)


class Zygote:
    """A running zygote process. Made by ``start``; dead for good once ``alive`` is False."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, layers: tuple[str, ...], descriptors: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._buffer = b""
        self._children: dict[int, Child] = {}
        self._jobs = 0
        self._pending_kills: list[bytes] = []
        self.layers = layers
        self.descriptors = descriptors  # above every number that the process can have
        self.alive = True
        self._loop.add_reader(control, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, mode: str, without: int = 0) -> Zygote:
        """Start the process with an empty environment; raises ``SandboxFault`` if it does not come up."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()  # which it has there too
            command = [_interpreter(), "-I", "-S", "-E", str(_ZYGOTE), str(number), mode, str(without)]
            try:
                if mode == "full":
                    command = wrapped(command)
                process = subprocess.Popen(
                    command,
                    env={},
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except BaseException as error:
                ours.close()
                if isinstance(error, OSError):
                    raise SandboxFault(f"the zygote could not be started: {error}") from None
                raise
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        ready = b""
        try:
            while len(ready) < frames.EVENT.size:
                data = await asyncio.wait_for(loop.sock_recv(ours, frames.EVENT.size), _START_SECONDS)
                if not data:
                    raise SandboxFault(f"the zygote ended at once: {_last_words(process)}")
                ready += data
        except BaseException as error:
            ours.close()
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
            if isinstance(error, asyncio.TimeoutError):
                raise SandboxFault(f"the zygote did not start within {_START_SECONDS:g} s") from None
            raise
        _, landlock_abi, _, _, layers = frames.EVENT.unpack(ready)
        return cls(process, ours, layer_names(layers, landlock_abi), number + _DESCRIPTORS)

    async def spawn(self, config: SandboxConfig) -> Child:
        """Fork a child that waits for its job on its own socket; raises ``SandboxFault`` if that cannot be done.

        Here, and nowhere else, a child's limits become plain data: it cannot import the configuration.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxFault(f"no connection for another child: {error}; run fewer at once") from None
        ours.setblocking(False)
        self._jobs += 1
        job = self._jobs
        limits = (config.cpu_seconds, config.memory_mb << 20, config.open_files, config.output_bytes)
        command = frames.COMMAND.pack(frames.SPAWN, job, *limits, config.frame_bytes)
        child = self._children[job] = Child(ours, config.frame_bytes, partial(self._kill, job), self._died)
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
                self._children.pop(job, None)
                ours.close()
                if isinstance(error, OSError):
                    raise SandboxFault(f"the zygote is gone: {error}") from None
                raise

    def _kill(self, job: int) -> None:
        self._pending_kills.append(frames.COMMAND.pack(frames.KILL, job, 0, 0, 0, 0, 0))
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
            event, job, status, cpu_seconds, _ = frames.EVENT.unpack(self._buffer[: frames.EVENT.size])
            self._buffer = self._buffer[frames.EVENT.size :]
            if event != frames.EXITED:
                log.error("the zygote %d sent a record that is none: %r", self._process.pid, event)
                self._died()
                return
            child = self._children.pop(job, None)
            if child is not None and not child.ended.done():
                child.ended.set_result(Ended(status, cpu_seconds))

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
        """Close the control connection, on which the zygote kills its children and exits; reap it."""
        self._died()
        deadline = self._loop.time() + _STOP_SECONDS
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                log.warning("the zygote %d did not stop; killing it", self._process.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, 9)
                self._process.wait()
                break
            await asyncio.sleep(0.005)
        if self._process.stderr is not None and not self._process.stderr.closed:
            if said := _last_line(self._process.stderr):
                log.error("the zygote %d said: %s", self._process.pid, said)
            self._process.stderr.close()


def _interpreter() -> str:
    """The interpreter itself, not a virtual environment's link to it: nothing of the environment is needed."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _last_words(process: subprocess.Popen[bytes]) -> str:
    status = process.wait()
    said = "" if process.stderr is None else _last_line(process.stderr)
    return f"{said or 'without a word'} (status {status})"


def _last_line(pipe: IO[bytes]) -> str:
    """The last line that has been written to ``pipe`` so far."""
    os.set_blocking(pipe.fileno(), False)
    lines = (pipe.read() or b"").decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
