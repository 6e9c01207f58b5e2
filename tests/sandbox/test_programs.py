"""Whole programs: tests that call ``__main__(text)`` run apart from them, publicly and hidden."""

from typing import Any

import pytest
from helpers.tables import tables
from shared_box import SharedBox, in_sandbox

from llm_as_judge.answers.code import PROGRAM, defines, defining_block
from llm_as_judge.sandbox.public_test import run_assert

TABLES = tables(__file__)

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
