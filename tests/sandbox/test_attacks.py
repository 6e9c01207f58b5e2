"""The attacks of ``attacks.py`` are blocked in every mode, as root and unprivileged; without a layer they are not."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pydantic
import pytest
from attacks import LAYERED, LIMITED, PROTOCOL

from llm_as_judge.sandbox.guest import confine, landlock, seccomp

RANGE = Path(__file__).with_name("attack_range.py")
NOBODY = 65534
#: The folder of the library that the configuration needs.
LIBRARIES = {"PYTHONPATH": str(Path(pydantic.__file__).parents[1])}

pytestmark = pytest.mark.skipif(seccomp.machine() is None, reason="needs Linux on x86_64 or aarch64")


@cache
def python_for(uid: int) -> str | None:
    """An interpreter that this user can start, able to read the package."""
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        code = f"import sys, pydantic, yaml; open({str(RANGE)!r}); sys.exit(sys.version_info < (3, 10))"
        if not Path(candidate).exists():
            continue
        try:
            command = [candidate, "-c", code]
            if subprocess.run(command, user=uid, cwd="/", capture_output=True, check=False, env=LIBRARIES).returncode:
                continue
        except PermissionError:
            continue
        return candidate
    return None


def attacked(mode: str, user: str = "self", *, without: int = 0, limits: str = "tight", names: object = ()) -> dict:
    """Breaches of each attack; skips if the mode does not work on this machine."""
    identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if user == "nobody" else {}
    if user == "nobody" and os.geteuid() != 0:
        pytest.skip("becoming another user needs root; this run tests the unprivileged user itself")
    python = python_for(NOBODY) if identity else sys.executable
    if python is None:
        pytest.skip("no Python 3.10 or later with pydantic that an unprivileged user can start")
    if mode == "full":
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        tried = subprocess.run(
            ["bwrap", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "true"],
            capture_output=True, text=True, check=False, cwd="/", **identity,
        )  # fmt: skip
        if tried.returncode:
            pytest.skip(f"bubblewrap does not work here: {tried.stderr.strip()}")
    if mode == "standard" and not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    done = subprocess.run(
        [python, str(RANGE), mode, str(without), limits, *names],
        capture_output=True, text=True, check=False, cwd="/", timeout=900,
        env={"PATH": os.environ["PATH"], **LIBRARIES}, **identity,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


SLOW = [("full", "self"), ("full", "nobody"), ("standard", "nobody"), ("no-open", "self"), ("no-open", "nobody")]


@pytest.mark.parametrize(
    ("mode", "user"), [("standard", "self"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_every_attack_is_blocked(mode: str, user: str) -> None:
    # no-open is for kernels without Landlock
    found = attacked(mode, user, without=confine.LANDLOCK if mode == "no-open" else 0)
    assert set(found) == {*LAYERED, *LIMITED, *PROTOCOL, "the next run"}
    through = {name: breaches for name, breaches in found.items() if breaches}
    assert not through


@pytest.mark.slow
def test_without_layers_or_limits_every_attack_on_them_breaks_through() -> None:
    found = attacked("unsafe", names=LAYERED)
    assert not [name for name in LAYERED if not broke(found[name])]
    found = attacked("unsafe", limits="generous", names=LIMITED)
    assert not [name for name in LIMITED if found[name] != ["went over the limit"]]


def broke(breaches: list[str]) -> bool:
    return any(line.startswith("BREACH") for line in breaches)


ONLY_SECCOMP = {
    "new processes", "thread bomb", "memory outside the limit", "changing files", "network and sockets",
    "kernel interfaces", "own limits", "regaining privileges", "file handles and mounts",
}  # fmt: skip
ONLY_LANDLOCK = {"reading files", "environment and own /proc", "directory handles", "links"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "needed"), [(confine.SECCOMP | confine.NO_PROCESSES, ONLY_SECCOMP), (confine.LANDLOCK, ONLY_LANDLOCK)]
)
def test_each_layer_is_needed(bits: int, needed: set[str]) -> None:
    found = attacked("standard", without=bits, names=LAYERED)
    assert not [name for name in needed if not broke(found[name])]
