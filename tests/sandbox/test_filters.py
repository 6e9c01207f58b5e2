"""The system call filter, the file rules and the guest folder as data, also for other architectures and kernels."""

import ast
import re
import struct
import sys
from pathlib import Path

import pytest

from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.guest import landlock, seccomp
from llm_as_judge.sandbox.zygote_client import GUEST, wrapped

ALLOW, KILL, EPERM, ENOSYS, ENOTTY = "allow", "kill", 1, 38, 25
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
TAGS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: What must never be there: clone, fork, execve, socket, connect, kill, ptrace, prctl, setuid, unlinkat, bpf and more.
FORBIDDEN = {
    "x86_64": (56, 57, 58, 59, 322, 41, 42, 62, 200, 234, 101, 157, 105, 263, 87, 82, 90, 321, 425, 165, 272, 160),
    "aarch64": (220, 221, 281, 198, 203, 129, 130, 131, 117, 167, 146, 35, 38, 52, 280, 425, 40, 97, 164),
}


def decide(program: bytes, tag: int, number: int, *arguments: int) -> str | int:
    """What the kernel's interpreter of the program returns for a call."""
    data = struct.pack("=IIQ6Q", number, tag, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(constant, constant & 0xFFFF)
        else:
            assert operation == 0x15
            at += if_true if accumulator == constant else if_false


@pytest.mark.parametrize("architecture", TAGS)
def test_the_program_allows_exactly_the_table_and_decides_by_arguments(architecture: str) -> None:
    tag = TAGS[architecture]
    special = {"x86_64": {16, 72, 302, 53, 435}, "aarch64": {29, 25, 261, 199, 435}}[architecture]
    for files in (True, False):
        program = seccomp.program(architecture, files=files)
        listed = set(seccomp.numbers(architecture, files=files).values())
        plain = (n for n in range(600) if n not in special)
        wrong = [n for n in plain if decide(program, tag, n) != (ALLOW if n in listed else EPERM)]
        assert not wrong
        assert not listed & set(FORBIDDEN[architecture])
        for other in (0x40000003, 0x40000028, *(t for name, t in TAGS.items() if name != architecture)):
            assert decide(program, other, 0) == KILL
        assert decide(program, tag, 0x40000000 + 1) == EPERM  # x32
    names = seccomp.numbers(architecture, files=False)
    assert not [name for name in names if "open" in name or ("stat" in name and name != "fstat") or "link" in name]
    program, tag = seccomp.program(architecture, files=True), TAGS[architecture]
    ioctl, fcntl, prlimit, socketpair = {"x86_64": (16, 72, 302, 53), "aarch64": (29, 25, 261, 199)}[architecture]
    for request, result in ((0x5421, ALLOW), (0x5451, ALLOW), (0x5412, ENOTTY), (0x8901, ENOTTY), (0, ENOTTY)):
        assert decide(program, tag, ioctl, 3, request) == result
    for command, result in ((0, ALLOW), (4, ALLOW), (1030, ALLOW), (8, EPERM), (10, EPERM), (15, EPERM), (1024, EPERM)):
        assert decide(program, tag, fcntl, 3, command) == result
    assert decide(program, tag, prlimit, 0, 7, 0) == ALLOW
    for arguments in ((1, 7, 0), (0, 7, 1), (0, 7, 1 << 32), (1, 7, 1)):
        assert decide(program, tag, prlimit, *arguments) == EPERM
    assert decide(program, tag, socketpair, 1, 1 | 0o2004000) == ALLOW
    for family, kind in ((1, 2), (1, 5), (2, 1), (16, 1)):
        assert decide(program, tag, socketpair, family, kind) == EPERM
    assert decide(program, tag, 435) == ENOSYS


@pytest.mark.parametrize("architecture", TAGS)
def test_the_numbers_are_the_kernels(architecture: str) -> None:
    found = [Path(path) for path in HEADERS[architecture] if Path(path).exists()]
    if not found:
        pytest.skip(f"no kernel headers for {architecture}")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", found[0].read_text()))
    numbers.setdefault("newfstatat", numbers.get("fstatat", ""))
    wrong = {
        name: number
        for name, number in seccomp.numbers(architecture, files=True).items()
        if name in numbers and int(numbers[name]) != number
    }
    assert not wrong
    assert len([name for name in seccomp.numbers(architecture, files=True) if name in numbers]) > 60


def test_a_ruleset_withholds_what_each_abi_can_and_installed_packages() -> None:
    known = {1: (0x1FFF,), 2: (0x3FFF,), 3: (0x7FFF,), 4: (0x7FFF, 3), 5: (0xFFFF, 3), 6: (0xFFFF, 3, 3)}
    for abi, fields in {**known, 7: known[6], 99: known[6]}.items():
        assert landlock.attributes(abi) == struct.pack(f"={len(fields)}Q", *fields), abi
    paths = [path for path, rights in landlock._rules() if rights & landlock._READ_FILE]
    assert paths and not [path for path in paths if path.endswith(("site-packages", "dist-packages"))]
    assert not [path for path in paths if path in ("/", "/etc", "/home", "/root", "/tmp", "/proc", "/usr")]


def test_guest_modules_import_only_the_standard_library_and_each_other() -> None:
    files = list(GUEST.glob("*.py"))
    assert len(files) >= 8
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or name.startswith("llm_as_judge.sandbox.guest"), (
                    f"{file.name} imports {name}"
                )


def test_inside_bubblewrap_nothing_else_of_the_package_exists() -> None:
    try:
        command = wrapped([sys.executable])
    except SandboxFault as fault:
        pytest.skip(str(fault))
    bound = {command[i + 1] for i, word in enumerate(command) if word.startswith(("--ro-bind", "--dev-bind"))}
    package = GUEST.parents[1]
    ours = {path for path in bound if path.startswith(str(package))}
    assert ours == {str(GUEST), str(GUEST.parent / "__init__.py"), str(package / "__init__.py")}
