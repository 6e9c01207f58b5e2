"""Shared by every job in a child: the connection to the host, executing foreign code, describing errors."""

import asyncio
import inspect
import socket
import sys
import traceback
import types
from os import _exit  # which a program changes
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import frames

FILENAME = "<snippet>"
_MESSAGE_LIMIT = 500


class Connection:
    """A child's connection to the host. The last message is the result, of at most ``frame_bytes``; then it exits."""

    def __init__(self, sock: socket.socket, frame_bytes: int) -> None:
        self.sock = sock
        self._frame_bytes = frame_bytes

    def send(self, message: Any) -> None:
        self.sock.sendall(frames.encode(message))

    def receive(self) -> dict[str, Any]:
        """Block until a message arrives; raises ``SystemExit`` when the host has closed the connection."""
        return frames.decode(self._exactly(frames.HEADER.unpack(self._exactly(frames.HEADER.size))[0]))

    def finish(self, end: dict[str, Any]) -> NoReturn:
        """Send the result and exit without running any more foreign code (atexit hooks, destructors, tasks)."""
        try:
            data = frames.encode(end)
        except (TypeError, ValueError, RecursionError) as error:
            data = frames.encode({"end": "raised", "error": describe(error)})
        if len(data) > self._frame_bytes:
            data = frames.encode({"end": "output_limit", "error": f"the result takes over {self._frame_bytes} bytes"})
        self.sock.setblocking(True)
        self.sock.sendall(data)
        _exit(0)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.sock.recv(min(count - len(data), 1 << 20))
            if not part:
                raise SystemExit("the host closed the connection")
            data += part
        return bytes(data)


def execute(source: str, name: str, prelude: str = "", names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute ``prelude`` and ``source``, each with its ``from __future__``, as one module; return its namespace."""
    module = types.ModuleType(name)
    module.__dict__.update(names or {})
    if "." in name:
        module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(prelude, "<prelude>", "exec", dont_inherit=True), module.__dict__)
    exec(compile(source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def defined(namespace: dict[str, Any], name: str) -> Any:
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    return namespace[name]


def finished(value: Any) -> Any:
    """Return ``value``, or the result of the coroutine that it is."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def describe(error: BaseException) -> str:
    """Write ``Type: message (line N)``, where N is the innermost line of the snippet in the traceback."""
    text = type(error).__name__
    if message := message_of(error):
        text += f": {message}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILENAME]
    if lines and not isinstance(error, SyntaxError):
        text += f" (line {lines[-1]})"
    return text


def message_of(error: BaseException) -> str:
    """Return the start of ``str(error)``, even if that raises."""
    try:
        return str(error)[:_MESSAGE_LIMIT]
    except BaseException as second:
        return f"<str() raised {type(second).__name__}>"
