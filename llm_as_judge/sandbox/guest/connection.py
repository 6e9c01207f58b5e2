"""A child's one connection, to the host: messages both ways, and the last one, after which the child is gone."""

from __future__ import annotations

import os
import socket
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.guest.snippet import describe


class Connection:
    """Args: ``frame_bytes``, the longest last message that may be sent."""

    def __init__(self, sock: socket.socket, frame_bytes: int) -> None:
        self.sock = sock
        self._frame_bytes = frame_bytes

    def send(self, message: Any) -> None:
        self.sock.sendall(frames.encode(message))

    def receive(self) -> dict[str, Any]:
        """Block until a message has come; raises ``EOFError`` when the host is gone."""
        return frames.decode_trusted(self._exactly(frames.HEADER.unpack(self._exactly(frames.HEADER.size))[0]))

    def finish(self, end: dict[str, Any]) -> NoReturn:
        """Send the result and leave without running anything more of the code's (atexit, destructors, tasks)."""
        try:
            data = frames.encode(end)
        except (TypeError, ValueError, RecursionError) as error:
            data = frames.encode({"end": "raised", "error": describe(error)})
        if len(data) > self._frame_bytes:
            data = frames.encode({"end": "output_limit", "error": f"the result takes over {self._frame_bytes} bytes"})
        self.sock.setblocking(True)
        self.sock.sendall(data)
        os._exit(0)

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self.sock.recv(min(count, 1 << 20))
            if not part:
                raise EOFError("the host closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
