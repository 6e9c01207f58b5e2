"""The self-test: attempts at everything that a child must not be able to do. Each is harmless if it succeeds.

The host sends the text of this file to a child like any other code.
"""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)


def probe(host_pid: int, host_file: str, descriptors: int) -> dict[str, str]:
    """Result of each attempt, "blocked" or "open"; ``descriptors`` is above any descriptor that could be inherited."""

    def read_files() -> None:
        for path in (host_file, "/etc/passwd", f"/proc/{os.getpid()}/maps"):
            with contextlib.suppress(OSError):
                return open(path, "rb").close()
        raise OSError("no file could be opened")

    def write_files() -> None:
        for folder in ("/tmp", "/dev/shm", "/var/tmp", "/"):
            path = os.path.join(folder, f".sandbox-probe-{os.getpid()}")
            try:
                open(path, "w").close()
            except OSError:
                continue
            os.unlink(path)
            return
        raise OSError("no folder could be written to")

    def tcp() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(1)
            with contextlib.suppress(ConnectionRefusedError):
                s.connect(("127.0.0.1", 9))

    def signals() -> None:
        for pid in (os.getppid(), host_pid):
            try:
                return os.kill(pid, 0)
            except OSError:
                continue
        raise OSError("no process could be signalled")

    def own_environment() -> None:
        if not os.environ:
            raise OSError("empty")

    def other_descriptors() -> None:
        for number in range(4, descriptors):
            with contextlib.suppress(OSError):
                os.fstat(number)
                return
        raise OSError("no other descriptor is open")

    attempts: dict[str, Callable[[], object]] = {
        "new processes": lambda: os.fork() or os._exit(0),
        "new programs": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "threads": lambda: threading.Thread(target=int).start(),
        "reading files": read_files,
        "listing folders": lambda: os.listdir("/"),
        "writing files": write_files,
        "TCP": tcp,
        "UDP": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9)),
        "local sockets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "signals to others": signals,
        "priority of others": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        "tracing others": lambda: _native("ptrace", 16902, os.getppid(), 0, 0),
        "host environment": lambda: open(f"/proc/{host_pid}/environ", "rb").close(),
        "inherited environment": own_environment,
        "inherited descriptors": other_descriptors,
        "shared memory": lambda: os.memfd_create("probe"),
        "new namespaces": lambda: _native("unshare", 0x10000000),
    }
    return {name: _state(attempt) for name, attempt in attempts.items()}


def _native(name: str, *arguments: int) -> None:
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _state(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (OSError, RuntimeError, AttributeError):
        return "blocked"
    return "open"
