"""The self-test: attempts at everything that a child must not be able to do. Each is harmless if it succeeds.

The host sends the text of this file to a child like any other code.
"""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)


def probe(host_pid: int, host_file: str, descriptors: int) -> dict[str, str]:
    """Make each attempt, "blocked" or "open"; ``descriptors`` is above any descriptor that could be inherited."""

    def write(folder: str) -> None:
        path = os.path.join(folder, f".sandbox-probe-{os.getpid()}")
        open(path, "w").close()
        os.unlink(path)

    def tcp() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(1)
            with contextlib.suppress(ConnectionRefusedError):
                s.connect(("127.0.0.1", 9))

    files = (host_file, "/etc/passwd", f"/proc/{os.getpid()}/maps")
    attempts: dict[str, Callable[[], object]] = {
        "new processes": lambda: os.fork() or os._exit(0),
        "new programs": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "threads": lambda: threading.Thread(target=int).start(),
        "reading files": lambda: _any(lambda path: open(path, "rb").close(), files),
        "listing folders": lambda: os.listdir("/"),
        "writing files": lambda: _any(write, ("/tmp", "/dev/shm", "/var/tmp", "/")),
        "TCP": tcp,
        "UDP": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9)),
        "local sockets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "signals to others": lambda: _any(lambda pid: os.kill(pid, 0), (os.getppid(), host_pid)),
        "priority of others": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        "tracing others": lambda: _native("ptrace", 16902, os.getppid(), 0, 0),
        "host environment": lambda: open(f"/proc/{host_pid}/environ", "rb").close(),
        "inherited environment": lambda: _any(str, os.environ),
        "inherited descriptors": lambda: _any(os.fstat, range(4, descriptors)),
        "shared memory": lambda: os.memfd_create("probe"),
        "new namespaces": lambda: _native("unshare", 0x10000000),
    }
    return {name: _state(attempt) for name, attempt in attempts.items()}


def _any(attempt: Callable[[Any], object], targets: Iterable[Any]) -> None:
    for target in targets:
        with contextlib.suppress(OSError):
            attempt(target)
            return
    raise OSError("no target was open")


def _native(name: str, *arguments: int) -> None:
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _state(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (OSError, RuntimeError, AttributeError):
        return "blocked"
    return "open"
