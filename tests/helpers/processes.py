"""Programs that tests run, living processes from /proc, and free ports."""

import os
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program(*words: object, **environment: object) -> subprocess.CompletedProcess[str]:
    """A finished command, which finds this package first; ``environment`` is added to that of this process."""
    own = {"PYTHONPATH": ROOT, **environment}
    env = {**os.environ, **{name: str(value) for name, value in own.items()}}
    return subprocess.run(list(map(str, words)), env=env, capture_output=True, text=True, timeout=900, check=False)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def processes(root: int) -> set[int]:
    """Pids of all living descendants of ``root``; zombies count."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {root}} - found:
        found |= more
    return found


def running(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
