"""What runs inside: a program of the standard library's alone, beside which nothing of ours is there."""

from __future__ import annotations

import ast
import sys

import pytest

from llm_as_judge.errors import SandboxFault
from llm_as_judge.sandbox.zygote_client import GUEST, wrapped

INSIDE = "llm_as_judge.sandbox.guest"


def test_what_runs_inside_imports_the_standard_library_and_itself_only() -> None:
    files = list(GUEST.glob("*.py"))
    assert len(files) >= 8
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or name.startswith(INSIDE), f"{file.name} imports {name}"


def test_inside_bubblewrap_there_is_nothing_else_of_the_package() -> None:
    try:
        command = wrapped([sys.executable])
    except SandboxFault as fault:
        pytest.skip(str(fault))
    bound = {command[i + 1] for i, word in enumerate(command) if word.startswith(("--ro-bind", "--dev-bind"))}
    package = GUEST.parents[1]
    ours = {path for path in bound if path.startswith(str(package))}
    assert ours == {str(GUEST), str(GUEST.parent / "__init__.py"), str(package / "__init__.py")}
