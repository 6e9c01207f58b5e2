"""What a child does to itself before it runs foreign code. Linux first; elsewhere what POSIX has.

Enforced here: resource limits, no_new_privs, death with the zygote, another uid when started as root, and no
new processes or threads. Not enforced here: file and network access (Landlock, seccomp and bubblewrap belong
in this file). The modes name what is asked for; ``Sandbox.describe`` tells what was found to hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import sys

MODES = ("full", "standard", "no-open", "unsafe")

#: Layers by bit, as the zygote reports them to the host.
LAYERS = ("rlimits", "no_new_privs", "no new processes", "own uid")
RLIMITS, NO_NEW_PRIVS, NO_PROCESSES, OWN_UID = (1 << i for i in range(len(LAYERS)))

_FIRST_UID = 60_000
_UIDS = 4_096
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38


def planned_layers(mode: str) -> int:
    """Bits of the layers that ``confine`` will put on in this process."""
    layers = RLIMITS
    if sys.platform == "linux":
        layers |= NO_NEW_PRIVS
    if mode != "unsafe":
        if os.geteuid() != 0:
            layers |= NO_PROCESSES
        elif _can_change_uid():
            layers |= NO_PROCESSES | OWN_UID
    return layers


def layer_names(bits: int) -> tuple[str, ...]:
    return tuple(name for i, name in enumerate(LAYERS) if bits >> i & 1)


def become_subreaper() -> None:
    """Have orphaned descendants handed to this process (the zygote), which can then kill them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def confine(layers: int, *, parent: int, slot: int, cpu_seconds: int, memory_bytes: int, open_files: int) -> None:
    """Apply ``layers`` to the calling process, for good; it ends with its ``parent``, the zygote.

    Raises:
        OSError: a planned layer could not be applied; the caller must not run foreign code then.
    """
    if layers & OWN_UID:
        uid = _FIRST_UID + slot % _UIDS
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _limit(resource.RLIMIT_CORE, 0, 0)
    # The soft limit's signal can be caught, the hard limit's cannot.
    _limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)
    _limit(resource.RLIMIT_NOFILE, open_files, open_files)
    _limit(resource.RLIMIT_FSIZE, 1 << 20, 1 << 20)
    if sys.platform == "linux":
        _limit(resource.RLIMIT_AS, memory_bytes, memory_bytes)
        if layers & NO_PROCESSES:
            _limit(resource.RLIMIT_NPROC, 0, 0)
        if layers & NO_NEW_PRIVS and not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
            raise OSError("no_new_privs was refused")
        # After the change of uid, which clears it.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    else:
        with contextlib.suppress(ValueError, OSError):
            _limit(resource.RLIMIT_DATA, memory_bytes, memory_bytes)
        if layers & NO_PROCESSES:
            _limit(resource.RLIMIT_NPROC, 0, 0)


def _limit(kind: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _can_change_uid() -> bool:
    """CAP_SETUID and CAP_SETGID are in the effective set (containers may have dropped them)."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return True
    return effective >> 6 & 0b11 == 0b11


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return int(_libc().prctl(option, value, 0, 0, 0)) == 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
