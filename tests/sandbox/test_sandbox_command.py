"""``llm-as-judge sandbox verdict`` and ``sandbox run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.commands.app import main

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"


def call(capsys: pytest.CaptureFixture[str], folder: Path, *options: str, **files: str) -> tuple[int, Any, str]:
    """Status, the JSON that is printed, and the errors."""
    words: list[str] = []
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        words += [f"--{name}", str(folder / f"{name}.py")]
    status = main(["sandbox", "verdict", *words, "--entry-point", "f", "--json", *options])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else None, " ".join(err.split())


def run_file(file: Path, source: str, *options: str) -> int:
    file.write_text(source, encoding="utf-8")
    return main(["sandbox", "run", str(file), *options])


def test_a_verdict_has_its_four_fields(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for tests in (CHECK, "assert f(2) == 4"):
        status, found, _ = call(capsys, tmp_path, solution="def f(x): return x * x", tests=tests)
        fields = {k: found[k] for k in ("passed", "outcome", "mode", "weak")}
        assert (status, fields) == (0, {"passed": True, "outcome": "finished", "mode": "split", "weak": False})
        status, found, _ = call(capsys, tmp_path, solution="def f(x): return 0", tests=tests)
        assert (status, found["passed"], found["outcome"]) == (1, False, "raised")


def test_a_weak_verdict_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found, _ = call(capsys, tmp_path, solution="def f(x): return x", tests="x = []\nassert f(x) is x")
    assert (status, found["mode"], found["weak"]) == (0, "nonce", True)
    assert "identities" in found["obstacle"]


def test_vacuous_tests_are_refused_with_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tests = "import math\nassert (f(2) == 4, 'wrong')\n"
    status, _, shown = call(capsys, tmp_path, solution="def f(x): return x * x", tests=tests)
    assert status == 2 and "tests.py:2" in shown and "returns None" in shown


def test_unsafe_is_asked_for_and_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    solution = "def f(x): return x * x"
    status, found, _ = call(capsys, tmp_path, "--sandbox", "unsafe", solution=solution, tests=CHECK)
    assert (status, found["sandbox"], found["weak"]) == (0, "unsafe", True)
    assert call(capsys, tmp_path, solution=solution, tests=CHECK)[1]["sandbox"] != "unsafe"


def test_limits_are_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sleeps = "import time\ntime.sleep(9)\ndef f(x): pass"
    status, found, _ = call(capsys, tmp_path, "--wall-seconds", "0.5", solution=sleeps, tests=CHECK)
    assert (status, found["outcome"]) == (1, "timeout")
    file = tmp_path / "script.py"
    for option in ("--cpu-seconds=1000000", "--wall-seconds=1000000", f"--memory-mb={1 << 30}"):
        assert run_file(file, "print('hello')", option) == 0, option
        assert capsys.readouterr().out == "hello\n"
    for option in (f"--cpu-seconds={2**32}", "--wall-seconds=1e300", f"--memory-mb={2**60}"):
        assert run_file(file, "print('hello')", option) == 2, option
        shown = capsys.readouterr().err
        assert "less than or equal" in shown and "Traceback" not in shown


def test_run_prints_what_the_file_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    assert run_file(file, "print('a')\nopen('/etc/passwd')") == 1
    shown = capsys.readouterr()
    assert shown.out == "a\n" and shown.err.startswith("raised: ")
    assert main(["sandbox", "run", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "raised"
    # Output that is not valid Unicode.
    raw = 'b\'{"end":"finished","value":null,"stdout":"a\\xed\\xa0\\x80b"}\''
    source = f"import os\nb = {raw}\nos.write(3, len(b).to_bytes(4, 'big') + b)\nos._exit(0)"
    assert run_file(file, source) == 0
    assert capsys.readouterr().out.startswith("a\ufffd")
