"""Asserts and ``check(candidate)`` are run as their authors mean them, also on functions that work in place.

Tests of another style and tests that check nothing are refused. Changed arguments count only if the tests look at them.
"""

import pytest
from helpers.tables import tables
from shared_box import SharedBox, shared_box

from llm_as_judge.assembly.check import prove_tests
from llm_as_judge.errors import DataError

TABLES = tables(__file__)

STYLES = TABLES["STYLES"]
ASYNCHRONOUS = {
    "asyncio.run": "import asyncio\nasync def main():\n    assert f(2) == 4\nasyncio.run(main())",
    "async check": "async def check(candidate):\n    assert candidate(2) == 4\nassert f(1) == 1",
}
#: Tests of another style after an assert that decides, and what the message names.
REFUSED = TABLES["REFUSED"]
SORTS, SORTED, CLEARS = "def f(x): x.sort()", "def f(x): return sorted(x)", "def f(x): x.clear()"
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
    calls = [
        "f(x)", "def run(v): f(v)\nrun(x)", "def run(v): return f(v)\nrun(x)", "run = lambda v: f(v)\nrun(x)",
        "g = f\ng(x)", "import functools\nfunctools.partial(f, x)()", "list(map(f, [x]))", "for y in [x]: f(y)",
        "class T:\n    def run(self, v): f(v)\nT().run(x)",
    ]  # fmt: skip
    measures = [
        "assert x == sorted(x)", "assert (x == sorted(x)) == True", "ok = x == sorted(x)\nassert ok == True",
        "assert eval('x == sorted(x)') == True", "assert all(a <= b for a, b in zip(x, x[1:])) == True",
    ]  # fmt: skip
    tests = [f"x = [3, 1, 2]\n{call}\n{measure}" for call in calls for measure in measures]
    tests.append("def test_it():\n    x = [3, 1, 2]\n    f(x)\n    y = sorted(x)\n    assert x == y\ntest_it()")
    verdicts = box.verdicts((CLEARS, each) for each in tests)
    assert not [each for each, v in zip(tests, verdicts, strict=True) if v.passed and not v.weak]
