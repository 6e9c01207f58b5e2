"""The process that forks one confined child per job.

The host starts it as a script (``python -I -S -E zygote_process.py CONTROL_FD MODE WITHOUT SITE``) with an empty
environment, so that its address space holds neither keys nor configuration. It has one thread and imports the common
modules of the standard library once; after that a child costs a fork. It does not know what the children run.

A child that is to run trusted tests with numpy imports it from the folder SITE before it is confined, about 0.1 s of
CPU time; neither it nor any other child can read that folder afterwards.
"""

import array
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys

_PACKAGE_ROOT = os.path.abspath(__file__).removesuffix("/llm_as_judge/sandbox/guest/zygote_process.py")
sys.path.append(_PACKAGE_ROOT)
from llm_as_judge.sandbox.guest import child_main, confine, frames, landlock  # noqa: E402

sys.path.remove(_PACKAGE_ROOT)
# Otherwise children would find the package's other modules and be denied reading them, which is no ImportError.
for _name, _module in sys.modules.items():
    if _name.startswith("llm_as_judge") and hasattr(_module, "__path__"):
        _module.__path__ = []

#: Imported before the fork: cheap for every child, and available even where a child cannot open files.
PRELOAD = (
    "__future__", "abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath",
    "collections", "collections.abc", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib",
    "enum", "fractions", "functools", "hashlib", "heapq", "html", "inspect", "io", "itertools", "json", "keyword",
    "locale", "logging", "math", "numbers", "operator", "pprint", "queue", "random", "re", "secrets", "shlex",
    "statistics", "string", "struct", "textwrap", "threading", "time", "timeit", "traceback", "types", "typing",
    "unicodedata", "unittest", "unittest.async_case", "unittest.mock", "urllib.parse", "uuid", "warnings", "weakref",
    "zlib", "zoneinfo", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_16",
    "encodings.utf_8_sig", "encodings.unicode_escape", "encodings.cp1252", "_strptime", "bz2", "concurrent.futures",
    "ctypes", "glob", "graphlib", "mmap", "pathlib", "pickle", "platform", "shutil", "tempfile", "fileinput",
)  # fmt: skip
#: What tests use of numpy; anything else of it is no longer readable once the child is confined.
NUMPY = tuple(f"numpy{part}" for part in ("", ".random", ".testing", ".ma", ".polynomial", ".fft", ".rec", ".char"))


class ZygoteProcess:
    """Main loop: receives spawn and kill commands, reports the end of each child."""

    def __init__(self, control: socket.socket, plan: confine.ConfinementPlan, site: str) -> None:
        self.control = control
        self.plan = plan
        self.site = site
        self.children: dict[int, tuple[int, int]] = {}  # pid -> number of its run, slot
        self.free_slots: list[int] = []  # a slot decides the uid
        self.wake, self.waker = socket.socketpair()
        for end in (self.wake, self.waker):
            end.setblocking(False)

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
        gc.freeze()  # the collector of a child would write to the pages it shares with this process
        self.control.sendall(frames.EVENT.pack(frames.READY, landlock.abi(), os.getpid(), 0.0, self.plan.layers))
        while True:
            for key, _ in selector.select():
                key.data()

    def read_command(self) -> None:
        """Read one record, so that a descriptor always belongs to the record it came with."""
        data, ancillary, _, _ = self.control.recvmsg(frames.COMMAND.size, socket.CMSG_SPACE(4), socket.MSG_WAITALL)
        if len(data) < frames.COMMAND.size:
            self.stop()
        action, number, *limits = frames.COMMAND.unpack(data)
        if action == frames.SPAWN:
            self.spawn(number, array.array("i", ancillary[0][2])[0], limits)
        elif action == frames.KILL:
            for pid, (known, _) in self.children.items():
                if known == number:
                    self.kill_group(pid)

    def spawn(self, number: int, connection: int, limits: list[int]) -> None:
        slot = self.free_slots.pop() if self.free_slots else len(self.children)
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(connection)
            self.free_slots.append(slot)
            self.report(number, frames.NOT_CONFINED, 0.0)
            return
        if pid:
            os.close(connection)
            self.children[pid] = number, slot
            return
        try:
            self.become_child(connection)
            cpu_seconds, memory_bytes, open_files, output_bytes, frame_bytes, numpy = limits
            if numpy:
                self.import_numpy()
            confine.confine(self.plan, zygote, slot, cpu_seconds, memory_bytes, open_files)
            child_main.main(socket.socket(fileno=3), output_bytes, frame_bytes)
        finally:
            os._exit(frames.NOT_CONFINED)

    def become_child(self, connection: int) -> None:
        """Take an own session, /dev/null on descriptors 0 to 2, the connection on 3, no others."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        if connection != 3:
            os.dup2(connection, 3)
        os.set_inheritable(3, False)
        confine.close_others(3, *(() if self.plan.ruleset < 0 else (self.plan.ruleset,)))

    def import_numpy(self) -> None:
        """Import numpy with one thread; where it is not installed, the tests' own import fails."""
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
        sys.path.append(self.site)
        for name in NUMPY:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        sys.path.remove(self.site)
        os.environ.clear()

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wake.recv(4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                self.kill_group(pid)  # the number is taken as long as the group has members
                if pid in self.children:
                    number, slot = self.children.pop(pid)
                    self.free_slots.append(slot)
                    self.report(number, os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
                if not self.plan.layers & confine.NO_PROCESSES:
                    self.kill_strays()

    def kill_strays(self) -> None:
        """Kill descendants that left their group: as orphans they have become children of this process."""
        path = f"/proc/self/task/{os.getpid()}/children"
        with contextlib.suppress(OSError), open(path, encoding="ascii") as children:
            for pid in map(int, children.read().split()):
                if pid not in self.children:
                    os.kill(pid, signal.SIGKILL)

    def kill_group(self, pid: int) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)

    def report(self, number: int, status: int, cpu_seconds: float) -> None:
        try:
            self.control.sendall(frames.EVENT.pack(frames.EXITED, number, status, cpu_seconds, 0))
        except OSError:
            self.stop()

    def stop(self) -> None:
        """Kill all descendants and exit: the host is gone or has closed the connection."""
        for pid in self.children:
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
    ZygoteProcess(control, confine.plan(sys.argv[2], int(sys.argv[3])), sys.argv[4]).run()


if __name__ == "__main__":
    main()
