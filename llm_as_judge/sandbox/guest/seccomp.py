"""The system calls that a child may make: an allow-list as a classic BPF program, for x86_64 and aarch64.

Other calls are refused with EPERM; a call of another architecture kills the process. The list has no call that starts a
process, program or thread, creates a socket other than a stream pair, sends a signal, or changes files, limits or the
filter itself.
"""

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Callable

#: Name, number on x86_64, number on aarch64 (- for none).
_TABLE = """
read 0 63; write 1 64; readv 19 65; writev 20 66; lseek 8 62; close 3 57; close_range 436 436; fstat 5 80;
dup 32 23; dup2 33 -; dup3 292 24; pipe 22 -; pipe2 293 59; eventfd2 290 19; poll 7 -; ppoll 271 73; select 23 -;
pselect6 270 72; epoll_create 213 -; epoll_create1 291 20; epoll_ctl 233 21; epoll_wait 232 -; epoll_pwait 281 22;
epoll_pwait2 441 441; sendto 44 206; sendmsg 46 211; recvfrom 45 207; recvmsg 47 212; shutdown 48 210;
getsockname 51 204; getpeername 52 205; getsockopt 55 209; mmap 9 222; mprotect 10 226; munmap 11 215;
mremap 25 216; madvise 28 233; brk 12 214; rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigreturn 15 139;
sigaltstack 131 132; pause 34 -; alarm 37 -; getitimer 36 102; setitimer 38 103; nanosleep 35 101;
clock_nanosleep 230 115; clock_gettime 228 113; clock_getres 229 114; gettimeofday 96 169; time 201 -;
times 100 153; futex 202 98; sched_yield 24 124; sched_getaffinity 204 123; restart_syscall 219 128;
getpid 39 172; getppid 110 173; gettid 186 178; getpgrp 111 -; getpgid 121 155; getsid 124 156; getuid 102 174;
geteuid 107 175; getgid 104 176; getegid 108 177; getgroups 115 158; getresuid 118 148; getresgid 120 150;
getrlimit 97 163; getrusage 98 165; sysinfo 99 179; uname 63 160; getcwd 79 17; getrandom 318 278;
getcpu 309 168; exit 60 93; exit_group 231 94
"""

#: Opening and looking up files; left out in mode no-open. Landlock decides which files.
_FILES_TABLE = """
open 2 -; openat 257 56; stat 4 -; lstat 6 -; newfstatat 262 79; statx 332 291; access 21 -; faccessat 269 48;
faccessat2 439 439; readlink 89 -; readlinkat 267 78; getdents 78 -; getdents64 217 61; pread64 17 67
"""

#: Allowed only with certain arguments.
_FILTERED_TABLE = "ioctl 16 29; fcntl 72 25; prlimit64 302 261; socketpair 53 199; clone3 435 435"

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# FIONCLEX, FIOCLEX, FIONBIO, FIONREAD: they affect only the caller's own descriptor.
_IOCTLS = (0x5450, 0x5451, 0x5421, 0x541B)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC. Not F_SETOWN with F_SETSIG: they send signals.
_FCNTLS = (0, 1, 2, 3, 4, 1030)

_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_KILL_PROCESS, _ERRNO = 0x80000000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF0000)


def machine() -> str | None:
    """Name this machine's architecture, None if there is no table for it."""
    known = sys.platform == "linux" and platform.machine() in _ARCHITECTURES and sys.maxsize > 1 << 32
    return platform.machine() if known else None


def numbers(architecture: str, *, files: bool) -> dict[str, int]:
    """Return numbers of the calls that are allowed with any arguments."""
    return _column(_TABLE + (";" + _FILES_TABLE if files else ""), architecture)


def program(architecture: str, *, files: bool) -> bytes:
    """Build the filter; ``files`` False leaves out every call that opens or looks up a file."""
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, _ARCHITECTURES[architecture][0]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    for number in numbers(architecture, files=files).values():
        code += [(_EQUAL, 0, 1, number), _ALLOW]
    special = _column(_FILTERED_TABLE, architecture)
    rules = {
        "ioctl": [*_one_of(1, _IOCTLS), _refuse(errno.ENOTTY)],
        "fcntl": [*_one_of(1, _FCNTLS), _refuse(errno.EPERM)],
        # Reading one's own limits: pid 0, no new value.
        "prlimit64": [*_all_zero(_argument(0), _argument(2), _argument(2) + 4), _refuse(errno.EPERM)],
        # AF_UNIX streams: a datagram pair could send to any socket that has a path.
        "socketpair": [
            (_LOAD, 0, 0, _argument(0)),
            (_EQUAL, 0, 4, 1),
            (_LOAD, 0, 0, _argument(1)),
            (_AND, 0, 0, 0xF),
            (_EQUAL, 0, 1, 1),
            _ALLOW,
            _refuse(errno.EPERM),
        ],
        # The C library then falls back to clone, which is not listed.
        "clone3": [_refuse(errno.ENOSYS)],
    }
    for name, body in rules.items():
        code += [(_EQUAL, 0, len(body), special[name]), *body]
    code.append(_refuse(errno.EPERM))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class Filter(ctypes.Structure):
    """A program in the form that the kernel takes; created before the fork, so that children share it."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def load(prepared: Filter, prctl: Callable[..., int]) -> None:
    """Apply the filter to the calling process permanently; needs no_new_privs. Raises ``OSError``."""
    if prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(prepared), 0, 0):
        raise OSError(ctypes.get_errno(), "the seccomp filter was refused")


def _column(table: str, architecture: str) -> dict[str, int]:
    column = _ARCHITECTURES[architecture][1]
    rows = [row.split() for row in table.split(";") if row.strip()]
    return {row[0]: int(row[1 + column]) for row in rows if row[1 + column] != "-"}


def _argument(index: int) -> int:
    """Return offset of the low half of an argument; both architectures are little-endian."""
    return _ARGUMENTS_OFFSET + 8 * index


def _one_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow if the argument is among ``values``, else fall through."""
    tests = [(_EQUAL, len(values) - 1 - i, 0 if i < len(values) - 1 else 1, v) for i, v in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(index)), *tests, _ALLOW]


def _all_zero(*offsets: int) -> list[Instruction]:
    """Allow if all of these words are zero, else fall through."""
    code: list[Instruction] = []
    for i, offset in enumerate(offsets):
        code += [(_LOAD, 0, 0, offset), (_EQUAL, 0, 2 * (len(offsets) - 1 - i) + 1, 0)]
    return [*code, _ALLOW]


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)
