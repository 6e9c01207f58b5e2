"""Confinement of a child before it runs foreign code: limits of ``SandboxConfig`` (CPU, memory), files, system calls.

Linux; elsewhere POSIX limits, for mode ``unsafe`` only. In this order: another uid if started as root, resource limits,
no_new_privs, death with the zygote, Landlock (files), seccomp (system calls). In mode ``full`` the zygote is already
inside bubblewrap. Whether a mode works is found by a self-test (``host``).
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from dataclasses import dataclass

from llm_as_judge.sandbox.guest import landlock, seccomp
from llm_as_judge.sandbox.guest.landlock import libc

#: Layers by bit, in the zygote's report to the host.
LAYERS = ("rlimits", "no_new_privs", "no new processes", "own uid", "landlock", "seccomp", "bubblewrap")
RLIMITS, NO_NEW_PRIVS, NO_PROCESSES, OWN_UID, LANDLOCK, SECCOMP, BUBBLEWRAP = (1 << i for i in range(len(LAYERS)))

#: Number of the system call close_range, the same on every architecture.
_CLOSE_RANGE = 436
_LAST_DESCRIPTOR = (1 << 31) - 1
_FIRST_UID = 60_000
_UIDS = 4_096
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SETGID_AND_SETUID = 0b11 << 6


@dataclass(frozen=True, slots=True)
class ConfinementPlan:
    """Confinement that all children of a zygote share, prepared before the fork."""

    layers: int
    ruleset: int = -1  # Landlock's descriptor
    filter: seccomp.Filter | None = None


def plan(mode: str, without: int = 0) -> ConfinementPlan:
    """Plan the layers of ``mode`` that work here, without the bits in ``without``; ``OSError`` if Landlock fails."""
    layers = RLIMITS
    if sys.platform == "linux":
        layers |= NO_NEW_PRIVS
    if mode == "unsafe":
        return ConfinementPlan(layers)
    if mode == "full":
        layers |= BUBBLEWRAP
    if os.geteuid() != 0:
        layers |= NO_PROCESSES
    elif _can_change_uid():
        layers |= NO_PROCESSES | OWN_UID
    layers |= LANDLOCK if landlock.abi() else 0
    layers &= ~without
    prepared, architecture = None, seccomp.machine()
    if architecture and not without & SECCOMP:
        layers |= SECCOMP | NO_PROCESSES & ~without
        code = seccomp.program(architecture, files=mode != "no-open")
        prepared = seccomp.Filter(len(code) // 8, code)
    return ConfinementPlan(layers, landlock.ruleset(landlock.abi()) if layers & LANDLOCK else -1, prepared)


def layer_names(bits: int, landlock_abi: int = 0) -> tuple[str, ...]:
    """Name the layers in ``bits``, with the version of Landlock."""
    names = [name for i, name in enumerate(LAYERS) if bits >> i & 1]
    return tuple(f"{name} {landlock_abi}" if name == "landlock" else name for name in names)


def prepare_zygote() -> None:
    """Hide this process's memory and /proc entries from its children; become the parent of their orphans."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_DUMPABLE, 0)


def confine(plan: ConfinementPlan, parent: int, slot: int, cpu_seconds: int, memory_bytes: int, files: int) -> None:
    """Apply ``plan`` permanently; the process dies with ``parent``. After ``OSError``, it must run no foreign code."""
    layers = plan.layers
    if layers & OWN_UID:
        uid = _FIRST_UID + slot % _UIDS
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _limit(resource.RLIMIT_CORE, 0, 0)
    # Code can catch the signal of the soft limit, but not that of the hard limit.
    _limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)
    _limit(resource.RLIMIT_NOFILE, files, files)
    _limit(resource.RLIMIT_FSIZE, 1 << 20, 1 << 20)
    if sys.platform != "linux":
        with contextlib.suppress(ValueError, OSError):
            _limit(resource.RLIMIT_DATA, memory_bytes, memory_bytes)
        return
    _limit(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    _limit(resource.RLIMIT_MEMLOCK, 0, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0, 0)
    if layers & NO_PROCESSES:
        _limit(resource.RLIMIT_NPROC, 0, 0)
    if layers & NO_NEW_PRIVS and not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        raise OSError("no_new_privs was refused")
    # After the change of uid, which clears it.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if plan.ruleset >= 0:
        landlock.restrict_self(plan.ruleset)
        os.close(plan.ruleset)
    if plan.filter is not None:
        seccomp.load(plan.filter, libc().prctl)


def close_others(*kept: int) -> None:
    """Close every descriptor above 2 except ``kept``, up to the highest possible number."""
    low = 3
    for number in (*sorted(kept), _LAST_DESCRIPTOR + 1):
        arguments = ctypes.c_uint(low), ctypes.c_uint(number - 1), ctypes.c_uint(0)
        if number > low and (sys.platform != "linux" or libc().syscall(ctypes.c_long(_CLOSE_RANGE), *arguments)):
            # Elsewhere, and before Linux 5.9; the self-test looks for descriptors that are left.
            os.closerange(low, min(number, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
        low = number + 1


def _limit(kind: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _can_change_uid() -> bool:
    """Tell whether CAP_SETUID and CAP_SETGID are effective; containers may have dropped them."""
    if sys.platform != "linux":
        return False
    sets = ctypes.create_string_buffer(24)  # effective, permitted, inheritable: twice, the low words first
    if libc().capget(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), sets):
        return False
    return bool(struct.unpack_from("=I", sets.raw)[0] & _CAP_SETGID_AND_SETUID == _CAP_SETGID_AND_SETUID)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return int(libc().prctl(option, value, 0, 0, 0)) == 0
