"""``llm-as-judge sandbox verdict`` and ``sandbox run``."""

import json
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.commands.app import main

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"
SQUARE = "def f(x): return x * x"
FIELDS = ("passed", "outcome", "mode", "weak")


def call(capsys: pytest.CaptureFixture[str], folder: Path, *options: str, **files: str) -> tuple[int, Any, str]:
    """Status, the JSON that is printed, and the errors."""
    words: list[str] = []
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        words += [f"--{name}", str(folder / f"{name}.py")]
    status = main(["sandbox", "verdict", *words, "--entry-point", "f", "--json", *options])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else {}, " ".join(err.split())


def test_a_verdict_has_its_fields_and_its_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sleeps = "import time\ntime.sleep(9)\ndef f(x): pass"
    wrong = []
    for solution, tests, options, status, fields in (
        (SQUARE, CHECK, (), 0, (True, "finished", "split", False)),
        (SQUARE, "assert f(2) == 4", (), 0, (True, "finished", "split", False)),
        ("def f(x): return 0", CHECK, (), 1, (False, "raised", "split", False)),
        ("def f(x): return x", "x = []\nassert f(x) is x", (), 0, (True, "finished", "nonce", True)),
        (SQUARE, CHECK, ("--sandbox", "unsafe"), 0, (True, "finished", "split", True)),
        (sleeps, CHECK, ("--wall-seconds", "0.5"), 1, (False, "timeout", "split", False)),
    ):
        got, found, _ = call(capsys, tmp_path, *options, solution=solution, tests=tests)
        if (got, tuple(found[k] for k in FIELDS)) != (status, fields) or (found["sandbox"] == "unsafe") != (
            "unsafe" in options
        ):
            wrong.append((solution, tests, got, found))
        assert ("identities" in found["obstacle"]) == (found["mode"] == "nonce")
    assert not wrong


def test_vacuous_tests_are_refused_with_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tests = "import math\nassert (f(2) == 4, 'wrong')\n"
    status, _, shown = call(capsys, tmp_path, solution=SQUARE, tests=tests)
    assert status == 2 and "tests.py:2" in shown and "returns None" in shown


def test_run_prints_what_the_file_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def run(source: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "script.py").write_text(source, encoding="utf-8")
        return main(["sandbox", "run", str(tmp_path / "script.py"), *options]), *capsys.readouterr()

    fails = "print('a')\nopen('/etc/passwd')"
    status, out, err = run(fails)
    assert (status, out) == (1, "a\n") and err.startswith("raised: ")
    status, out, _ = run(fails, "--json")
    assert (status, json.loads(out)["outcome"]) == (1, "raised")
    for option in ("--cpu-seconds=1000000", "--wall-seconds=1000000", f"--memory-mb={1 << 30}"):
        assert run("print('hello')", option)[:2] == (0, "hello\n"), option
    for option in (f"--cpu-seconds={2**32}", "--wall-seconds=1e300", f"--memory-mb={2**60}"):
        status, _, err = run("print('hello')", option)
        assert status == 2 and "less than or equal" in err and "Traceback" not in err, option
    # Output that is not valid Unicode.
    raw = 'b\'{"end":"finished","value":null,"stdout":"a\\xed\\xa0\\x80b"}\''
    status, out, _ = run(f"import os\nb = {raw}\nos.write(3, len(b).to_bytes(4, 'big') + b)\nos._exit(0)")
    assert status == 0 and out.startswith("a\ufffd")
