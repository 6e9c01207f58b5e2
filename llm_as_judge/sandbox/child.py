"""The host's handle on one forked child: messages, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llm_as_judge.sandbox.guest import frames

#: How long a child may take to be gone after its result or after it closed its connection.
_GRACE_SECONDS = 0.5
#: How long the zygote may take to tell that a killed child is gone; then it is taken for dead.
_SILENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child's process ended, as the zygote saw it."""

    status: int  # exit status, or minus the signal's number
    cpu_seconds: float


class Child:
    """One forked child; ``ended`` resolves to None when the zygote died before it could tell."""

    def __init__(
        self, sock: socket.socket, frame_bytes: int, kill: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kill = kill
        self._give_up = give_up
        self._sock = sock
        self._frames = frames.Decoder(frame_bytes)
        self._sending = asyncio.Lock()
        self.ended: asyncio.Future[Ended | None] = self._loop.create_future()
        self.ended.add_done_callback(self._forsaken)
        self.confined = False  # its set-up succeeded; what happens from then on is the code's doing
        self.killed_for = ""

    def _forsaken(self, ended: asyncio.Future[Ended | None]) -> None:
        """Without a zygote nobody may ever close the other end."""
        if ended.result() is None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a frame; a child that is gone is noticed by ``receive``."""
        data = frames.encode(message)
        async with self._sending:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._sock, data)

    async def receive(self, values: int = frames.VALUES) -> dict[str, Any] | None:
        """The next frame, None when there will be no more; raises ``FrameError`` for what is none or holds too much."""
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

    def kill(self, reason: str) -> None:
        """End the child and its descendants; the first reason stands."""
        if self.killed_for or self.ended.done():
            return
        self.killed_for = reason
        self._kill()
        silence = self._loop.call_later(_SILENCE_SECONDS, self._give_up)
        self.ended.add_done_callback(lambda ended: silence.cancel())

    async def end(self) -> Ended | None:
        """Wait until the process is gone, killing it if it lingers."""
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
