"""``llm-as-judge sandbox verdict`` and ``sandbox run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.commands.app import main

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"


def call(capsys: pytest.CaptureFixture[str], folder: Path, *options: str, **files: str) -> tuple[int, Any]:
    words: list[str] = []
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        words += [f"--{name}", str(folder / f"{name}.py")]
    status = main(["sandbox", "verdict", *words, "--entry-point", "f", "--json", *options])
    out = capsys.readouterr().out
    return status, json.loads(out) if out else None


@pytest.mark.parametrize("tests", [CHECK, "assert f(2) == 4"])
def test_a_verdict_has_its_four_fields(tests: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found = call(capsys, tmp_path, solution="def f(x): return x * x", tests=tests)
    assert status == 0
    assert {k: found[k] for k in ("passed", "outcome", "mode", "weak")} == {
        "passed": True, "outcome": "finished", "mode": "split", "weak": False
    }  # fmt: skip
    status, found = call(capsys, tmp_path, solution="def f(x): return 0", tests=tests)
    assert (status, found["passed"], found["outcome"]) == (1, False, "raised")


def test_a_weak_verdict_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found = call(capsys, tmp_path, solution="def f(x): return x", tests="x = []\nassert f(x) is x")
    assert (status, found["mode"], found["weak"]) == (0, "nonce", True)
    assert "identities" in found["obstacle"]


def test_unsafe_is_asked_for_and_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    solution = "def f(x): return x * x"
    status, found = call(capsys, tmp_path, "--sandbox", "unsafe", solution=solution, tests=CHECK)
    assert (status, found["sandbox"], found["weak"]) == (0, "unsafe", True)
    status, found = call(capsys, tmp_path, solution=solution, tests=CHECK)
    assert found["sandbox"] != "unsafe"


def test_limits_are_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found = call(
        capsys, tmp_path, "--wall-seconds", "0.5", solution="import time\ntime.sleep(9)\ndef f(x): pass", tests=CHECK
    )
    assert (status, found["outcome"]) == (1, "timeout")


def test_wrong_use_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(capsys, tmp_path, solution="def f(x): return x", tests="")[0] == 2
    assert call(capsys, tmp_path, "--sandbox", "tight", solution="def f(x): return x", tests=CHECK)[0] == 2
    assert main(["sandbox", "verdict", "--solution", "no.py", "--tests", "no.py", "--entry-point", "f"]) == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [("--cpu-seconds", 10**12), ("--cpu-seconds", 2**32), ("--wall-seconds", 1e300), ("--memory-mb", 2**60)],
)
def test_a_limit_beyond_all_measure_is_an_error_with_the_bound(
    option: str, value: float, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('hello')", encoding="utf-8")
    assert main(["sandbox", "run", str(file), option, str(value)]) == 2
    shown = capsys.readouterr().err
    assert "less than or equal" in shown and "Traceback" not in shown


@pytest.mark.parametrize("option", ["--cpu-seconds=1000000", "--wall-seconds=1000000", f"--memory-mb={1 << 30}"])
def test_the_largest_limits_work(option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('hello')", encoding="utf-8")
    assert main(["sandbox", "run", str(file), option]) == 0
    assert capsys.readouterr().out == "hello\n"


def test_output_that_is_no_unicode_is_printed_all_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    raw = 'b\'{"end":"finished","value":null,"stdout":"a\\xed\\xa0\\x80b"}\''
    file.write_text(f"import os\nb = {raw}\nos.write(3, len(b).to_bytes(4, 'big') + b)\nos._exit(0)", encoding="utf-8")
    assert main(["sandbox", "run", str(file)]) == 0
    assert capsys.readouterr().out.startswith("a\ufffd")


def test_run_prints_what_the_file_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("print('hello')", encoding="utf-8")
    assert main(["sandbox", "run", str(file)]) == 0
    assert capsys.readouterr().out == "hello\n"
    file.write_text("print('a')\nopen('/etc/passwd')", encoding="utf-8")
    assert main(["sandbox", "run", str(file)]) == 1
    shown = capsys.readouterr()
    assert shown.out == "a\n" and shown.err.startswith("raised: ")
    assert main(["sandbox", "run", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "raised"
