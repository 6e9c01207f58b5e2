"""Verdicts: no forgery passes, right solutions do, in every style of tests; what cannot be split is weak."""

from pathlib import Path

import pytest
from helpers.tables import tables
from shared_box import SharedBox, shared_box

from llm_as_judge.assembly.check import prove_tests
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox import limits

TABLES = tables(__file__)

CHECK = """
def check(candidate):
    assert candidate(2) == 4
    assert candidate(3) == 9
    assert candidate(-5) == 25
"""
ASSERTS = "assert f(2) == 4\nassert f(3) == 9\nassert f(-5) == 25"
SQUARE = "def f(x): return x * x"
CLEARS = "def f(x):\n    x.clear()\n    return []"
FORGED = tables(Path(__file__).with_name("forgeries"))
FORGERIES = {**FORGED["KNOWN"], **FORGED["ENDS_EARLY"], **FORGED["OWN"]}


def test_no_forgery_passes_and_no_expected_value_is_seen(box: SharedBox) -> None:
    named = [(name, solution, tests) for name, solution in FORGERIES.items() for tests in (CHECK, ASSERTS)]
    verdicts = zip(named, box.verdicts((solution, tests) for _, solution, tests in named), strict=True)
    assert not [case for case, v in verdicts if v.passed or v.weak or v.mode != "split" or v.outcome == "fault"]
    seen = TABLES["looks for it"]
    assert not box.verdict(seen, "assert f(1) == 'EXPECTED'").passed


def test_only_known_forgeries_pass_when_tests_and_solution_share_a_process(box: SharedBox) -> None:
    shared = f"x = f\nassert x is f\n{CHECK}"
    verdicts = dict(zip(FORGERIES, box.verdicts((s, shared) for s in FORGERIES.values()), strict=True))
    passed = {name for name, v in verdicts.items() if v.passed}
    assert {"always equal", "an int that is always equal", "a truthy comparison", "the nonce from the frames"} <= passed
    assert not passed & FORGED["ENDS_EARLY"].keys()
    assert all(v.weak for v in verdicts.values())


SPEAKS_ITSELF = TABLES["speaks itself"]


def test_neither_changed_arguments_nor_an_error_of_the_solution_pass(box: SharedBox) -> None:
    changed = TABLES["changed arguments"]
    forged = [(solution, tests) for solution in (SPEAKS_ITSELF, CLEARS) for tests in changed]
    assert not box.others(forged, passed=False)
    assert not box.others([("def f(x): return sorted(x)", tests) for tests in changed], passed=True)
    pairs = []
    for error in ("StopIteration", "StopAsyncIteration", "GeneratorExit", "type('S', (StopIteration,), {})"):
        for tests in ("assert all(map(f, [1, 2]))", "for y in map(f, [1, 2]): assert y == 5"):
            pairs.append((f"def f(x): raise {error}", tests))
        pairs.append((f"def f(x):\n    yield 1\n    raise {error}", "assert list(f(1)) == [1]"))
    assert not [pair for pair, v in zip(pairs, box.verdicts(pairs), strict=True) if v.passed]


def test_right_solutions_pass_with_their_prelude_and_wrong_ones_fail(box: SharedBox) -> None:
    assert not box.others([(SQUARE, CHECK), (SQUARE, ASSERTS)], passed=True)
    for solution, outcome in (
        ("def f(x): return x + 2", "raised"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def f(x): return bytearray(10**9)", "memory"),
    ):
        found = box.verdict(solution, CHECK)
        assert (found.passed, found.outcome, found.mode) == (False, outcome, "split")
    for expected, passed in ((4, True), (5, False)):
        assert box.verdict("def check(x): return x * x", f"assert check(2) == {expected}", "check").passed is passed
    solution = "from __future__ import annotations\ndef f(x: Unknown) -> Unknown: return square(x)"
    prelude = "import math\ndef square(x): return x * x"
    for tests in (CHECK, ASSERTS, "x = f\n" + ASSERTS + "\nassert x is f"):
        assert box.verdict(solution, tests, prelude=prelude).passed, tests


def test_iterators_give_the_items_that_are_asked_for(box: SharedBox) -> None:
    assert not box.others(TABLES["iterators"], passed=True)
    solution = SPEAKS_ITSELF.replace('"value": []', '"value": {"t": "stream", "v": 0}, "items": []')
    found = box.verdict(solution, "assert list(f(1)) == []")
    assert (found.passed, found.outcome) == (False, "raised") and "invalid value" in found.error


def test_a_value_is_the_same_on_both_sides_and_ordinary_tests_are_split(box: SharedBox) -> None:
    values = TABLES["values"]
    tests = "v = {}\nassert f(v) == v\nassert isinstance(f(v), type(v))"
    pairs = [("def f(x): return x", tests.replace("{}", value, 1)) for value in values]
    assert not box.others(pairs, passed=True)
    assert not box.others(TABLES["ordinary tests"], passed=True)


def test_tests_that_cannot_be_split_are_judged_weakly_and_say_why(box: SharedBox) -> None:
    solution = TABLES["of two kinds"]
    wrong = []
    for tests, obstacle in TABLES["obstacles"]:
        found = box.verdict(solution, tests)
        if (found.mode, found.weak) != ("nonce", True) or obstacle not in found.obstacle:
            wrong.append((tests, found))
    assert not wrong
    for chooses in ("f = 3", "class f:\n    def __init__(s, x): pass", "def f(x): return f", "f = None\ndel f"):
        assert box.verdict(chooses, CHECK).mode == "split", "the solution cannot choose how it is judged"


def test_missing_and_invalid_tests_are_refused(box: SharedBox) -> None:
    for tests in ("assert True", "x = 1", "assert g(2) == 4"):
        with pytest.raises(DataError, match="never use it"):
            box.verdict("def f(x): return x", tests)
    deep = "assert f(1) == " + "(" * 900 + "1" + ")" * 900, "assert f(1) == " + "+".join(["1"] * 50_000)
    for tests in ("assert f(", "assert f(1) == '\0'", *deep):
        with pytest.raises(DataError, match="not Python"):
            box.verdict("def f(x): return x", tests)
    with pytest.raises(DataError, match="no tests for 'f'"):
        box.verdict("def f(x): return x", "  ")


def test_each_call_has_its_own_time_and_all_calls_a_multiple_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ALL_TESTS", 3)
    burn = (
        "import signal, time\ndef f(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass"
    )
    disarmed = burn.replace("s):\n", "s):\n    signal.setitimer(signal.ITIMER_PROF, 0)\n")
    with shared_box(cpu_seconds=1, wall_seconds=60) as box:
        assert box.verdict(burn, "for _ in range(4): f(0.4)").passed
        for source, seconds, error in ((burn, 99, "CPU time of one call"), (disarmed, 0.8, "3 s of CPU time")):
            found = box.verdict(source, f"for _ in range(9): f({seconds})")
            assert (found.outcome, error in found.error) == ("timeout", True), found.error


STYLES = TABLES["STYLES"]
ASYNCHRONOUS = {
    "asyncio.run": "import asyncio\nasync def main():\n    assert f(2) == 4\nasyncio.run(main())",
    "async check": "async def check(candidate):\n    assert candidate(2) == 4\nassert f(1) == 1",
}
#: Tests of another style after an assert that decides, and what the message names.
REFUSED = TABLES["REFUSED"]
SORTS, SORTED, EMPTIES = "def f(x): x.sort()", "def f(x): return sorted(x)", "def f(x): x.clear()"
#: Tests that any function passes, the line of their first assert, and what the function does.
VACUOUS = TABLES["VACUOUS"]


def refusal(box: SharedBox, tests: str) -> str:
    try:
        box.wait(prove_tests(box.sandbox, tests, "f"))
    except DataError as error:
        return str(error)
    return ""


def test_both_styles_pass_right_solutions_only(box: SharedBox) -> None:
    wrong = []
    for name, tests in {**STYLES, **ASYNCHRONOUS}.items():
        right = box.verdict("def f(x): return x * x", tests)
        mode = ("nonce", True) if name in ASYNCHRONOUS else ("split", False)
        if not right.passed or (right.mode, right.weak) != mode:
            wrong.append((name, right))
        if box.verdict("def f(x): return x ** 3", tests).passed:
            wrong.append((name, "passes a wrong solution"))
        wrong += [(name, reason)] if (reason := refusal(box, tests)) else []
    assert not wrong


def test_tests_of_another_style_are_refused_with_line_and_cure(box: SharedBox) -> None:
    wrong = []
    for tests, named in REFUSED.items():
        with pytest.raises(DataError) as caught:
            box.verdict("def f(x): return x * x", f"assert f(2) == 4\n{tests}")
        wrong += [str(caught.value)] if named not in str(caught.value) or "as asserts" not in str(caught.value) else []
    missing = "__import__('pytest').approx(4)"
    for fails, named in (
        ("int('four')", "ValueError"),
        (missing, "No module named 'pytest'"),
        ("__import__('numpy').int8(4)", "No module named 'numpy'"),
    ):
        with pytest.raises(DataError, match=f"before they call 'f': .*{named}"):
            box.verdict("def f(x): return x * x", f"expected = {fails}\nassert f(2) == expected")
    assert not wrong


def test_only_tests_that_run_apart_have_numpy() -> None:
    with shared_box(cpu_seconds=20, wall_seconds=60) as box:
        tests = (
            "import numpy as np\nfrom numpy.testing import assert_allclose\ndef check(candidate):\n"
            "    assert np.allclose(candidate([0.1, 0.2], 3), [0.3, 0.6])\n"
            "    x = np.random.default_rng(1).random(3)\n    assert_allclose(candidate(x.tolist(), 2), 2 * x)\n"
        )
        right = "def f(x, k): return [v * k for v in x]"
        verdict = box.verdict(right, tests)
        assert (verdict.passed, verdict.mode, verdict.weak) == (True, "split", False), verdict
        assert not box.verdict("def f(x, k): return [v + k for v in x]", tests).passed
        assert not refusal(box, tests)
        imports = box.verdict(f"import numpy\n{right}", tests)
        assert not imports.passed and "No module named 'numpy'" in imports.error
        seen = "import sys\nif 'numpy' in sys.modules: raise SystemExit\n"
        assert box.verdict(seen + right, tests).passed
        hidden = f"import numpy\nassert open(numpy.__file__).read()\n{tests}"
        refused = (
            (f"{tests}\nasync def g(): pass", "only tests that run apart .* the tests are asynchronous"),
            (tests.replace("x.tolist()", "x"), "only tests that run apart .* ndarray cannot cross"),
            (hidden, "before they call 'f': PermissionError|before they call 'f': FileNotFoundError"),
        )
        for text, named in refused:
            with pytest.raises(DataError, match=named):
                box.verdict(right, text)


def test_vacuous_tests_are_found_with_the_line(box: SharedBox) -> None:
    wrong = []
    for tests, (line, behaviour) in VACUOUS.items():
        found = refusal(box, tests)
        named = found.startswith(f"line {line} of the tests: ") and behaviour in found
        if not (named if line else not found):
            wrong.append((tests, found))
    assert not wrong


def test_work_in_place_is_judged_and_weak_unless_the_argument_must_stay(box: SharedBox) -> None:
    ways = TABLES["in place"]
    tests = [f"x = [3, 1, 2]\n{way}" for way in ways]
    assert not box.others([(SORTS, each) for each in tests], passed=True, weak=True)
    wrong = [(solution, each) for solution in (SORTED, "def f(x): x.reverse()") for each in tests]
    assert not [pair for pair, v in zip(wrong, box.verdicts(wrong), strict=True) if v.passed]
    stays = "x = [3, 1, 2]\nassert f(x) == [1, 2, 3]\nassert x == [3, 1, 2]"
    assert not box.others([(SORTED, stays)], passed=True)
    assert not box.verdict("def f(x):\n    x.sort()\n    return x", stays).passed


def test_no_way_of_calling_the_function_hides_that_a_verdict_is_weak(box: SharedBox) -> None:
    calls = TABLES["calls"]
    measures = TABLES["measures"]
    tests = [f"x = [3, 1, 2]\n{call}\n{measure}" for call in calls for measure in measures]
    tests.append("def test_it():\n    x = [3, 1, 2]\n    f(x)\n    y = sorted(x)\n    assert x == y\ntest_it()")
    verdicts = box.verdicts((EMPTIES, each) for each in tests)
    assert not [each for each, v in zip(tests, verdicts, strict=True) if v.passed and not v.weak]
