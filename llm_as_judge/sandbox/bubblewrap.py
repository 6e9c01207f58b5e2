"""The command that starts the zygote inside bubblewrap: an empty file system, no network, own process numbers.

Inside there is only what the interpreter needs, read-only. As an unprivileged user bubblewrap makes a user
namespace; as root it needs none and keeps the three capabilities the zygote uses on its children.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.guest import landlock

#: All of the package that there is inside.
GUEST = Path(landlock.__file__).parent

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/urandom")


def wrapped(command: Sequence[str]) -> list[str]:
    """``command``, an interpreter and its arguments, inside bubblewrap; ``SandboxFault`` where there is none."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxFault("bubblewrap is not installed (the package bubblewrap has the command bwrap)")
    options = ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--unshare-cgroup-try"]
    options += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            options += ["--cap-add", capability]
    else:
        options += ["--unshare-user"]
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *landlock.own_libraries()]
    own = [str(folder / "__init__.py") for folder in GUEST.parents[:2]]
    bound: list[str] = []
    for path in [*_SYSTEM, *standard, command[0], *own, str(GUEST)]:
        if not any(path == outer or path.startswith(f"{outer}/") for outer in bound):
            options += ["--ro-bind-try", path, path]
            bound.append(path)
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    return [program, *options, "--remount-ro", "/", "--chdir", "/", *command]
