"""Living processes, from /proc."""

from pathlib import Path


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
