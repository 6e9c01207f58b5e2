"""The process that forks one confined child per snippet.

Started by the host as a script (``python -I -S -E zygote.py CONTROL_FD MODE WITHOUT``) with an empty environment, so
that neither key nor configuration is in its address space. Single-threaded. It imports the common standard
library modules once; a child then costs a fork. It knows nothing of what the children run.
"""

from __future__ import annotations

# Without the enums that signal puts around it, which would cost a child dozens of page faults.
import _signal  # type: ignore[import-not-found]
import array
import contextlib
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import sys

# Modules register what to do after a fork: to make locks anew, to seed random. The zygote has one thread and holds no
# lock when it forks, and a child seeds random itself; the hooks would cost it a fifth of its time.
_register_at_fork = os.register_at_fork
os.register_at_fork = lambda **hooks: None

_PACKAGE_ROOT = os.path.abspath(__file__).removesuffix("/llm_as_judge/sandbox/guest/zygote.py")
sys.path.append(_PACKAGE_ROOT)
from llm_as_judge.sandbox.guest import child, confine, frames, landlock  # noqa: E402

sys.path.remove(_PACKAGE_ROOT)

#: Imported before the fork: cheap for every child, and there even where a child cannot open files.
PRELOAD = (
    "abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath",
    "collections", "collections.abc", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "html", "inspect", "io",
    "itertools", "json", "keyword", "locale", "logging", "math", "numbers", "operator", "pprint",
    "queue", "random", "re", "secrets", "shlex", "statistics", "string", "struct", "textwrap",
    "threading", "time", "timeit", "traceback", "types", "typing", "unicodedata", "unittest",
    "urllib.parse", "uuid", "warnings", "weakref", "zlib", "zoneinfo", "encodings.ascii",
    "encodings.idna", "encodings.latin_1", "encodings.utf_16", "encodings.utf_8_sig",
    "encodings.unicode_escape", "encodings.cp1252", "_strptime", "bz2", "concurrent.futures", "ctypes",
    "glob", "graphlib", "mmap", "pathlib", "pickle", "platform", "shutil", "tempfile",
)  # fmt: skip


class Zygote:
    """The loop: spawn and kill commands in, exit events out."""

    def __init__(self, control: socket.socket, plan: confine.Plan) -> None:
        self.control = control
        self.plan = plan
        self.jobs: dict[int, int] = {}  # pid -> job
        self.slots: dict[int, int] = {}  # pid -> slot, which decides the uid
        self.free_slots: list[int] = []
        self.wake, self.waker = socket.socketpair()
        for end in (self.wake, self.waker):
            end.setblocking(False)
        self.command = b""
        self.descriptors: list[int] = []

    def run(self) -> None:
        confine.prepare_zygote()
        os.environ.clear()  # bubblewrap adds to it
        os.chdir("/")
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.waker.fileno(), warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ, self.read_command)
        selector.register(self.wake, selectors.EVENT_READ, self.reap)
        gc.collect()
        gc.freeze()
        ready = frames.EVENT.pack(frames.READY, landlock.abi(), os.getpid(), 0.0, self.plan.layers)
        self.control.sendall(ready)
        while True:
            for key, _ in selector.select():
                key.data()

    def read_command(self) -> None:
        """Read at most the rest of one record, so that a descriptor is never another record's."""
        missing = frames.COMMAND.size - len(self.command)
        data, ancillary, _, _ = self.control.recvmsg(missing, socket.CMSG_SPACE(4))
        if not data:
            self.stop()
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.descriptors += array.array("i", payload[: len(payload) - len(payload) % 4])
        self.command += data
        if len(self.command) < frames.COMMAND.size:
            return
        action, job, *limits = frames.COMMAND.unpack(self.command)
        descriptors, self.command, self.descriptors = self.descriptors, b"", []
        if action == frames.SPAWN:
            self.spawn(job, descriptors[0], *limits)
        elif action == frames.KILL:
            for pid, known in self.jobs.items():
                if known == job:
                    self.kill_group(pid)

    def spawn(
        self,
        job: int,
        connection: int,
        cpu_seconds: int,
        memory_bytes: int,
        open_files: int,
        output_bytes: int,
        frame_bytes: int,
    ) -> None:
        slot = self.free_slots.pop() if self.free_slots else len(self.slots)
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(connection)
            self.free_slots.append(slot)
            self.report(job, frames.NOT_CONFINED, 0.0)
            return
        if pid:
            os.close(connection)
            self.jobs[pid], self.slots[pid] = job, slot
            return
        status = frames.NOT_CONFINED
        try:
            self.become_child(connection)
            confine.confine(
                self.plan,
                parent=zygote,
                slot=slot,
                cpu_seconds=cpu_seconds,
                memory_bytes=memory_bytes,
                open_files=open_files,
            )
            child.main(socket.socket(fileno=3), output_bytes, frame_bytes)
        finally:
            os._exit(status)

    def become_child(self, connection: int) -> None:
        """Own session, a /dev/null of its own on descriptors 0 to 2, the connection on 3, no others."""
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        if connection != 3:
            os.dup2(connection, 3)
        os.set_inheritable(3, False)
        confine.close_others(3, *(() if self.plan.ruleset < 0 else (self.plan.ruleset,)))

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wake.recv(4096):
                pass
        while (ended := self.next_ended()) is not None:
            pid, status, usage = ended
            if pid in self.jobs:
                self.free_slots.append(self.slots.pop(pid))
                cpu_seconds = usage.ru_utime + usage.ru_stime
                self.report(self.jobs.pop(pid), os.waitstatus_to_exitcode(status), cpu_seconds)
            if not self.plan.layers & confine.NO_PROCESSES:
                self.kill_strays()

    def next_ended(self) -> tuple[int, int, resource.struct_rusage] | None:
        """Reap one child that has ended, after killing what is left of its group."""
        with contextlib.suppress(ChildProcessError):
            if self.plan.layers & confine.NO_PROCESSES:  # it was alone in its group
                ended = os.wait4(-1, os.WNOHANG)
                return ended if ended[0] else None
            if hasattr(os, "waitid"):
                # The number of a group cannot become another's while its leader is unreaped.
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if info is None:
                    return None
                self.kill_group(info.si_pid)
                return os.wait4(info.si_pid, 0)
            ended = os.wait4(-1, os.WNOHANG)
            if ended[0]:
                self.kill_group(ended[0])
                return ended
        return None

    def kill_strays(self) -> None:
        """Kill descendants that left their group: being orphans, they have become this process's children."""
        path = f"/proc/self/task/{os.getpid()}/children"
        with contextlib.suppress(OSError), open(path, encoding="ascii") as children:
            for pid in map(int, children.read().split()):
                if pid not in self.jobs:
                    os.kill(pid, signal.SIGKILL)

    def kill_group(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def report(self, job: int, status: int, cpu_seconds: float) -> None:
        try:
            self.control.sendall(frames.EVENT.pack(frames.EXITED, job, status, cpu_seconds, 0))
        except OSError:
            self.stop()

    def stop(self) -> None:
        """The host is gone or has closed: take everything along."""
        for pid in self.jobs:
            self.kill_group(pid)
        self.kill_strays()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
                self.kill_strays()
        os._exit(0)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    confine.close_others(control.fileno())
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    os.register_at_fork = _register_at_fork
    child.rehearse()
    Zygote(control, confine.plan(sys.argv[2], int(sys.argv[3]))).run()


if __name__ == "__main__":
    main()
