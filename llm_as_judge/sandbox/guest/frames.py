"""The two wire formats: JSON frames between host and child, fixed records between host and zygote.

A frame is a 4-byte big-endian length and UTF-8 JSON, never pickle, because the child is hostile. A record is small
enough to be written in one piece and carries at most one file descriptor, so the zygote needs no parser.
"""

import json
import re
import struct
import sys
from typing import Any

HEADER = struct.Struct("!I")

#: host -> zygote: action, number of the run, its limits (CPU seconds, memory, open files, output and frame bytes), and
#: whether it has numpy
COMMAND = struct.Struct("!cQIQIQQ?")
SPAWN, KILL = b"S", b"K"
#: zygote -> host: event, number of the run, exit status (negative: signal), CPU seconds, layer bits. READY has
#: Landlock's ABI in place of the number and the zygote's pid in place of the status.
EVENT = struct.Struct("!cQidI")
READY, EXITED = b"R", b"X"
#: Exit status of a child that could not be set up and so never ran foreign code. Foreign code can exit with it too, but
#: only after the byte that a child sends once it is set up, before its first frame.
NOT_CONFINED = 99
CONFINED = b"C"

#: Limits of a message: number of values and keys, depth of nesting.
VALUES, DEPTH = 1_000_000, 320

_MARKS = (b"[", b"{", b",", b":")
#: What counts in JSON without escapes; the text of a string is skipped.
_TOKEN = re.compile(rb'"[^"]*"?|[\[\]{},:]')


class FrameError(ValueError):
    """The other side sent an invalid frame."""


class FrameTooLong(FrameError):
    """A frame is longer than the limit, or holds too many values."""


class Decoder:
    """Assembles frames from pieces; a body over ``limit`` bytes is refused by its header, before it is stored."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self, values: int = VALUES) -> dict[str, Any] | None:
        """Return the next message, None until it is complete. Raises ``FrameError``; see ``decode``."""
        if len(self._buffer) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack_from(self._buffer)[0]
        if end > self._limit + HEADER.size:
            raise FrameTooLong(f"a message takes over {self._limit} bytes")
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:  # one copy less
            body = bytes(view[HEADER.size : end])
        del self._buffer[:end]
        return decode(body, values)


def encode(message: Any) -> bytes:
    """Encode one frame; raises ``TypeError``, ``ValueError`` or ``RecursionError`` for values that JSON cannot hold."""
    body = json.dumps(message).encode()
    return HEADER.pack(len(body)) + body


def decode(body: bytes, values: int = VALUES) -> dict[str, Any]:
    """Decode the message of a frame's body, with unpaired surrogates replaced.

    Raises ``FrameTooLong`` for more than ``values`` values, before any object is created, and ``FrameError`` for what
    is nested more than ``DEPTH`` deep or no JSON object.
    """
    _check_size(body, values)
    surrogates = b"\\ud" in body or b"\\uD" in body
    try:
        message = json.loads(body.decode("utf-8", "replace"))
        if surrogates:
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError(f"expected an object, got {type(message).__name__}")
    return message


def _check_size(body: bytes, values: int) -> None:
    """Check signs: each value but the first, and each key, follows a bracket, comma or colon; an empty list is two."""
    if sum(map(body.count, _MARKS)) <= values and body.count(b"[") + body.count(b"{") <= DEPTH:
        return  # even if all of them are outside of strings
    count = depth = deepest = 0
    for token in _TOKEN.finditer(body.replace(b"\\\\", b"").replace(b'\\"', b"")):
        mark = token.string[token.start()]
        if mark in b"[{,:":
            count += 1
            depth += mark in b"[{"
            deepest = max(depth, deepest)
            if count > values:
                raise FrameTooLong(f"a message holds over {values} values")
        elif mark in b"]}":
            depth -= 1
    if deepest > DEPTH:
        raise FrameError(f"a message has over {DEPTH} lists inside one another")


def size(message: Any) -> tuple[int, int]:
    """Measure memory in bytes that a decoded message takes, and its number of values and keys."""
    stack, memory, count = [message], 0, 0
    while stack:
        part = stack.pop()
        memory += sys.getsizeof(part)
        count += 1
        if isinstance(part, dict):
            stack += part
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return memory, count
