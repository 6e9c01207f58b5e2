"""The files that a child can open, enforced by Landlock through its three system calls.

A child may read what the interpreter needs (the standard library, shared libraries, time zones, /dev/urandom) and write
/dev/null. Every right that the running kernel can withhold is withheld: all other file access from ABI 1 on, moving
files between folders from 2, truncation from 3, TCP from 4, device ioctls from 5, signals and abstract sockets outside
of the child from 6. Seccomp refuses what an older kernel cannot withhold.
"""

import ctypes
import fcntl
import functools
import glob
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
#: File rights that a ruleset can withhold, by the ABI that introduced them.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_TCP_RIGHTS = {4: 0b11}  # bind, connect
_SCOPES = {6: 0b11}  # abstract unix sockets, signals

#: Size of the ruleset's attributes by the ABI that introduced the field: a kernel refuses fields it does not know.
_ATTRIBUTE_BYTES = {1: 8, 4: 16, 6: 24}


def abi() -> int:
    """Return the kernel's Landlock version, 0 if it is missing or disabled."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_CREATE_RULESET_VERSION)))


def attributes(version: int) -> bytes:
    """Pack the attributes of a ruleset that withholds everything that this ABI can, for the kernel."""
    fields = [sum(r for since, r in t.items() if since <= version) for t in (_FILE_RIGHTS, _TCP_RIGHTS, _SCOPES)]
    return struct.pack("=QQQ", *fields)[: max(size for since, size in _ATTRIBUTE_BYTES.items() if since <= version)]


def ruleset(version: int) -> int:
    """Open the ruleset for children of this interpreter; returns a descriptor (10 or above). Raises ``OSError``."""
    packed = attributes(version)
    low = _call(_CREATE_RULESET, packed, ctypes.c_size_t(len(packed)), ctypes.c_uint(0))
    if low < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    # The lowest numbers are for a child's standard descriptors and its connection.
    descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(low)
    for path, rights in _rules():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this system
        try:
            rule = struct.pack("=Qi", rights, place)
            if _call(_ADD_RULE, descriptor, ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint(0)) < 0:
                raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")
        finally:
            os.close(place)
    return descriptor


def restrict_self(descriptor: int) -> None:
    """Apply the ruleset to the calling process permanently; needs no_new_privs. Raises ``OSError``."""
    if _call(_RESTRICT_SELF, descriptor, ctypes.c_uint(0)) < 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def own_libraries() -> list[str]:
    """Find the interpreter's own shared libraries."""
    return glob.glob(f"{glob.escape(sysconfig.get_config_var('LIBDIR') or '')}/lib*.so*")


def _rules() -> Iterator[tuple[str, int]]:
    for folder in dict.fromkeys(sys.path):
        if os.path.isdir(folder):
            yield folder, _READ_DIR  # the import system lists folders
            for entry in os.listdir(folder):
                if entry not in ("site-packages", "dist-packages"):
                    path = os.path.join(folder, entry)
                    yield path, _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        elif os.path.isfile(folder):
            yield folder, _READ_FILE
    for root in ("/lib", "/usr/lib", "/lib64", "/usr/lib64"):  # shared libraries, which extension modules need
        inner = f"{root}/{sysconfig.get_config_var('MULTIARCH')}"
        yield inner if os.path.isdir(inner) else root, _READ_FILE
    for path in (*own_libraries(), "/etc/ld.so.cache", "/dev/urandom"):
        yield path, _READ_FILE
    yield "/usr/share/zoneinfo", _READ_FILE | _READ_DIR
    yield "/dev/null", _READ_FILE | _WRITE_FILE


def _call(number: int, *arguments: object) -> int:
    return int(libc().syscall(ctypes.c_long(number), *arguments))


@functools.cache
def libc() -> ctypes.CDLL:
    """Load the C library, with ``ctypes.get_errno``."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library
