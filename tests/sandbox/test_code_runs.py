"""Code and whole programs in the sandbox."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.tables import tables
from shared_box import SharedBox, in_sandbox, shared_box

from llm_as_judge.answers.code import PROGRAM, defines, defining_block
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.sandbox.children import outcome_of
from llm_as_judge.sandbox.host import CodeResult
from llm_as_judge.sandbox.public_test import run_assert
from llm_as_judge.sandbox.zygote_client import ExitReport

TABLES = tables(__file__)

FRAME = "import os, time\ndef send(b):\n    os.write(3, len(b).to_bytes(4, 'big') + b)\n"
#: Source, outcome, part of the error.
MISBEHAVIOUR = TABLES["MISBEHAVIOUR"]


@pytest.fixture(scope="module")
def box() -> Iterator[SharedBox]:
    with shared_box(cpu_seconds=1, wall_seconds=2, memory_mb=256) as box:
        yield box


def test_a_value_that_json_cannot_hold_is_text_and_a_coroutine_is_awaited(box: SharedBox) -> None:
    result = box.run("print('a'); import sys; print('b', file=sys.stderr)")
    assert (result.outcome, result.stdout) == ("finished", "a\nb\n")
    assert box.run("def add(a, b):\n    return {'sum': a + b}", call="add", args=[2, 3]).value == {"sum": 5}
    for expression, value in {
        "(1, 2)": "(1, 2)", "[(1, 2)]": "[(1, 2)]", "{1: 2}": "{1: 2}", "__import__('fractions').Fraction(1, 2)": "1/2",
        "2**70": 2**70, "[1.5, None, True, 'x']": [1.5, None, True, "x"],
    }.items():  # fmt: skip
        assert box.run(f"def f():\n    return {expression}", call="f").value == value
    assert box.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3", call="f").value == 3


def test_misbehaviour_is_an_outcome_and_does_not_change_the_next_run(box: SharedBox) -> None:
    async def run_all() -> list[CodeResult]:
        return list(await asyncio.gather(*(box.sandbox.run_code(source) for source, _, _ in MISBEHAVIOUR)))

    found = [(*case, result) for case, result in zip(MISBEHAVIOUR, box.wait(run_all()), strict=True)]
    assert not [row for row in found if row[3].outcome != row[1] or row[2] not in row[3].error]
    assert box.run("def f():\n    return 'x' * 5_000_000", call="f").outcome == "output_limit"
    box.run("import builtins, json, sys\nbuiltins.planted = json.planted = sys.planted = 1")
    source = "import builtins, json, sys\ndef f(): return [hasattr(m, 'planted') for m in (builtins, json, sys)]"
    assert box.run(source, call="f").value == [False, False, False]


def test_only_a_child_that_was_never_set_up_is_a_fault() -> None:
    for confined, outcome in ((False, "fault"), (True, "raised")):
        child: Any = SimpleNamespace(killed_for="", confined=confined, last=None)
        assert outcome_of(child, ExitReport(99, 0.0), SandboxConfig())[0] == outcome


def test_one_assert_reports_what_it_got_and_what_it_expected(box: SharedBox) -> None:
    solution = "def f(x):\n    return x + 1"
    asserts = ["assert f(1) == 2", "assert f(1) == 3", "assert f(1) > 5", "assert f('a') == 1"]
    right, wrong, other, error = (box.wait(run_assert(box.sandbox.run_code, solution, each)) for each in asserts)
    assert (right.passed, right.got, right.expected) == (True, "2", "2")
    assert (wrong.passed, wrong.got, wrong.expected) == (False, "2", "3")
    assert (other.passed, other.got) == (False, "")
    assert error.passed is False and error.error.startswith("TypeError")


CHECK = "def check(candidate):\n    assert candidate(2) == 4\n"
SQUARE = "def f(x): return x * x"


def verdict(cli: CommandLine, folder: Path, *options: str, solution: str, tests: str, status: int = 0) -> str:
    for name, text in (("solution", solution), ("tests", tests)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    files = ["--solution", folder / "solution.py", "--tests", folder / "tests.py", "--entry-point", "f"]
    return cli("sandbox", "verdict", *files, *options, status=status)


def test_a_verdict_has_its_fields_and_vacuous_tests_are_refused(cli: CommandLine, tmp_path: Path) -> None:
    sleeps = "import time\ntime.sleep(9)\ndef f(x): pass"
    for solution, tests, options, status, fields in (
        (SQUARE, CHECK, (), 0, (True, "finished", "split", False)),
        (SQUARE, "assert f(2) == 4", (), 0, (True, "finished", "split", False)),
        ("def f(x): return 0", CHECK, (), 1, (False, "raised", "split", False)),
        ("def f(x): return x", "x = []\nassert f(x) is x", (), 0, (True, "finished", "nonce", True)),
        (SQUARE, CHECK, ("--sandbox", "unsafe"), 0, (True, "finished", "split", True)),
        (sleeps, CHECK, ("--wall-seconds", "0.5"), 1, (False, "timeout", "split", False)),
    ):
        given = {"solution": solution, "tests": tests, "status": status}
        found = json.loads(verdict(cli, tmp_path, "--json", *options, **given))
        assert tuple(found[k] for k in ("passed", "outcome", "mode", "weak")) == fields, given
        assert (found["sandbox"] == "unsafe") == ("unsafe" in options)
        assert ("identities" in found["obstacle"]) == (found["mode"] == "nonce")
    verdict(cli, tmp_path, solution=SQUARE, tests="import math\nassert (f(2) == 4, 'wrong')\n", status=2)
    shown = " ".join(cli.err.split())
    assert "line 2 of the tests: the tests also pass a function that returns None" in shown


def test_run_prints_what_the_file_prints(cli: CommandLine, tmp_path: Path) -> None:
    def run(source: str, *options: str, status: int = 0) -> str:
        (tmp_path / "script.py").write_text(source, encoding="utf-8")
        return cli("sandbox", "run", tmp_path / "script.py", *options, status=status)

    fails = "print('a')\nopen('/etc/passwd')"
    assert run(fails, status=1) == "a\n" and cli.err.startswith("raised: ")
    assert json.loads(run(fails, "--json", status=1))["outcome"] == "raised"
    for option in ("--cpu-seconds=1000000", "--wall-seconds=1000000", f"--memory-mb={1 << 30}"):
        assert run("print('hello')", option) == "hello\n", option
    for option in (f"--cpu-seconds={2**32}", "--wall-seconds=1e300", f"--memory-mb={2**60}"):
        run("print('hello')", option, status=2)
        assert "less than or equal" in cli.err, option
    # Output that is not valid Unicode.
    raw = 'b\'{"end":"finished","value":null,"stdout":"a\\xed\\xa0\\x80b"}\''
    out = run(f"import os\nb = {raw}\nos.write(3, len(b).to_bytes(4, 'big') + b)\nos._exit(0)")
    assert out.startswith("a\ufffd")


SUMS = "n = int(input())\nprint(sum(map(int, input().split())))"
TESTS = f"assert {PROGRAM}('2\\n3 4\\n') == '7'\nassert {PROGRAM}('1\\n5') == '5'"


def test_programs_read_and_print_in_every_usual_way_and_run_anew_for_each_input(box: SharedBox) -> None:
    for source in TABLES["right"]:
        found = box.verdict(source, TESTS, PROGRAM)
        assert (found.passed, found.mode, found.weak, found.error) == (True, "split", False, ""), source


def test_what_a_program_does_wrong_is_its_own_fault(box: SharedBox) -> None:
    for source, outcome, error in TABLES["wrong"]:
        found = box.verdict(source, TESTS, PROGRAM)
        assert not found.passed and found.outcome == outcome and error in found.error, (source, found)


SPY = TABLES["SPY"]


def test_a_program_cannot_read_the_outputs_that_are_wanted(box: SharedBox) -> None:
    tests = f"cases = [('1', 'KEY-4711')]\nfor x, y in cases:\n    assert {PROGRAM}(x) == y"
    assert not box.verdict(SPY, tests, PROGRAM).passed
    assert not box.verdict(SPY, f"assert {PROGRAM}('1') == 'KEY-4711'", PROGRAM).passed
    shared = box.verdict(SPY, f"f = {PROGRAM}\nassert f is {PROGRAM}\n{tests}", PROGRAM)
    assert shared.passed and shared.weak, "the program looks in the right places"


def test_large_inputs_reach_the_program_and_tests_without_memory_are_not_its_fault(box: SharedBox) -> None:
    tests = f"x = '1 ' * 4_000_000\nassert {PROGRAM}(x) == '4000000'"
    assert box.verdict("print(len(input().split()))", tests, PROGRAM).passed
    with pytest.raises(Exception, match="the tests fail before they call '__main__': MemoryError"):
        box.verdict(SUMS, f"x = 'x' * 10**10\nassert {PROGRAM}(x) == ''", PROGRAM)


def test_public_tests_of_programs_show_what_was_printed() -> None:
    async def found(box: Any) -> Any:
        tests = (TESTS.splitlines()[0], f"assert {PROGRAM}('1\\n5') == '6'", f"assert callable({PROGRAM})")
        results = [await run_assert(box.run_code, SUMS, test, PROGRAM) for test in tests]
        other = await run_assert(box.run_code, "def f(x):\n    return x", "assert f('__main__') == '__main__'")
        broken = await run_assert(box.run_code, "print(", tests[2], PROGRAM)
        crash = await run_assert(box.run_code, "input()\nint('x')", tests[0], PROGRAM)
        return results, other, broken, crash

    results, other, broken, crash = in_sandbox(found, cpu_seconds=5)
    assert [r.passed for r in results] == [True, False, True] and other.passed
    assert (results[1].got, results[1].expected) == ("'5'", "'6'")
    assert broken.error.startswith("SyntaxError") and crash.error.startswith("ValueError") and "line 2" in crash.error


def test_the_program_of_a_reply_is_its_last_block_that_prints() -> None:
    reply = f"Try this:\n```python\nprint(1)\n```\nBetter:\n```python\n{SUMS}\n```\nIt prints\n```\n7\n```\nfor 3 4."
    assert defining_block(reply, PROGRAM) == SUMS and defines(SUMS, PROGRAM)
    assert defining_block(SUMS, PROGRAM) == SUMS and not defines("x = 7", PROGRAM)
