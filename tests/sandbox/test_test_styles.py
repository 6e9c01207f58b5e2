"""Tests in every style are run as their authors mean them, also of functions that work in place.

Tests that check nothing are found. Changed arguments count only if the tests look at them.
"""

import pytest
from shared_box import SharedBox

from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.code_verdict import vacuous

UNITTEST = "import unittest\nclass T(unittest.TestCase):\n"
STYLES = {
    "function": "def test_f():\n    assert f(2) == 4",
    "function called by the tests": "def test_f():\n    assert f(2) == 4\nif __name__ == '__main__':\n    test_f()",
    "unittest": f"{UNITTEST}    def setUp(self): self.x = 2\n    def test_a(self):\n"
    "        self.assertEqual(f(self.x), 4)",
    "unittest.main": f"{UNITTEST}    def test_a(self):\n        self.assertEqual(f(2), 4)\n"
    "if __name__ == '__main__':\n    unittest.main()",
    "subTest": f"{UNITTEST}    def test_a(self):\n        for x in (1, 2):\n            with self.subTest(x=x):\n"
    "                self.assertEqual(f(x), x * x)",
    "class": "class TestF:\n    def setup_method(self): self.x = 2\n    def test_a(self):\n"
    "        assert f(self.x) == 4",
    "main": "if __name__ == '__main__':\n    assert f(2) == 4",
    "parametrize": "import pytest\n@pytest.mark.parametrize('x, y', [(2, 4), pytest.param(3, 9)])\n"
    "def test_a(x, y):\n    assert f(x) == y",
    "raises and approx": "import pytest\ndef test_a():\n    assert f(2) == pytest.approx(4.0)\n"
    "    with pytest.raises(TypeError, match='multiply'):\n        f('a')",
    "parametrized class": "import pytest\n@pytest.mark.parametrize(argnames='x, y', argvalues=[(2, 4), (3, 9)])\n"
    "class TestF:\n    def test_a(self, x, y):\n        assert f(x) == y",
    "pytest.main and sys.exit": "import pytest, sys\ndef test_a():\n    if f(2) != 4: pytest.fail('wrong')\n"
    "if __name__ == '__main__':\n    pytest.main([__file__])\n    sys.exit(0)",
    "setups": "v = []\ndef setup_module(module): v.append(2)\ndef setup_function(): v.append(2)\n"
    "def test_a():\n    assert len(v) == 2 and f(v[1]) == 4\nclass TestF:\n    @classmethod\n"
    "    def setup_class(cls): cls.x = 2\n    def setup_method(self, method): self.y = 4\n"
    "    def test_a(self):\n        assert f(self.x) == self.y",
    "inherited tests": "import unittest\nclass Base:\n    def test_a(self): self.assertEqual(f(2), 4)\n"
    "class T(Base, unittest.TestCase): pass",
    "helpers": "class Case:\n    def __init__(self, x): self.x = x\n    def holds(self):\n"
    "        assert f(self.x) == self.x ** 2\ndef verify(function):\n    assert function(2) == 4\n"
    "for check_all in (verify,): check_all(f)\nCase(2).holds()",
    "check and function": "def check(candidate):\n    assert candidate(1) == 1\ndef test_f():\n    assert f(2) == 4",
}
ASYNCHRONOUS = {
    "async function": "async def test_a():\n    assert f(2) == 4",
    "async unittest": "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n"
    "        self.assertEqual(f(2), 4)",
}
#: Asserts that pytest, unittest or the file runs, in a place that is easily missed.
HIDDEN = {
    "from unittest import TestCase as TC\nclass T(TC):\n    def test_a(self): self.assertEqual(f(3), 9)",
    f"{UNITTEST}    def test_a(self): self.assertEqual(f(3), 9)\nunittest.TextTestRunner().run(T('test_a'))",
    f"{UNITTEST}    def test_a(self): self.assertEqual(f(3), 9)\nT('test_a').run(unittest.TestResult())",
    "import unittest\ndef a():\n    assert f(3) == 9\ncase = unittest.FunctionTestCase(a)",
    "class TestF:\n    class TestG:\n        def test_a(self):\n            assert f(3) == 9",
    "class TestF:\n    def __init__(self): self.y = 9\n    def test_a(self):\n        assert f(3) == self.y",
    "if True:\n    def test_a():\n        assert f(3) == 9",
    "try:\n    def test_a():\n        assert f(3) == 9\nexcept ImportError: pass",
    "def test_a():\n    assert f(3) == 9\ntry:\n    test_a()\nexcept AssertionError: print('failed')",
}
#: Tests that cannot judge, and what the message names.
REFUSED = {
    "def helper():\n    assert f(2) == 4": "line 3",
    "def test_a(tmp_path):\n    assert f(2) == 4": "line 3",
    "def main():\n    check_all(f)\ndef check_all(function):\n    assert function(2) == 4": "line 5",
    "class Checks:\n    def test_a(self):\n        assert f(2) == 4": "line 4",
    "import numpy\nassert numpy.allclose(f(2), 4)": "uses numpy",
    "import pytest\n@pytest.mark.skip\ndef test_a():\n    assert f(2) == 4": "pytest.mark.skip",
    "from pytest import fixture\n@fixture\ndef x(): return 2": "pytest.fixture",
}
SORTS, SORTED, CLEARS = "def f(x): x.sort()", "def f(x): return sorted(x)", "def f(x): x.clear()"
#: Tests that any function passes, the line of their first assert, and what the function does.
VACUOUS = {
    "assert (f(2) == 4, 'message')": (1, "returns None"),
    "try:\n    assert f(2) == 4\nexcept AssertionError:\n    pass": (2, "returns None"),
    "def test_a():\n    try:\n        assert f(2) == 4\n    except Exception:\n        print('failed')": (
        3,
        "returns None",
    ),
    "try:\n    f(2)\n    assert False\nexcept Exception:\n    pass": (3, "returns None"),
    "for x, y in []:\n    assert f(x) == y": (2, "returns None"),
    "f(2)": (1, "returns None"),
    f"{UNITTEST}    @unittest.skip('later')\n    def test_a(self): self.assertEqual(f(2), 4)": (4, "returns None"),
    f"{UNITTEST}    @unittest.expectedFailure\n    def test_a(self): self.assertEqual(f(2), 4)": (4, "returns None"),
    f"{UNITTEST}    def test_a(self):\n        with self.assertRaises(Exception): f(2)": (4, "raises an exception"),
}
HELPER = "def h():\n    assert f(3) == 9\n"
TASK = "import asyncio\nasync def t():\n    assert f(3) == 9\nasync def main():\n"
#: Asserts beside one that decides: their failure is never seen, and the line; or it is (0).
UNSEEN = {
    f"{TASK}    await asyncio.gather(t(), return_exceptions=True)\nasyncio.run(main())": 4,
    f"{TASK}    await asyncio.wait([asyncio.create_task(t())])\nasyncio.run(main())": 4,
    f"{HELPER}    yield\nh()": 3,
    f"{HELPER}(h() for _ in range(2))": 3,
    f"{HELPER}map(h, ())": 3,
    f"{HELPER}try:\n    h()\nexcept Exception as e: print(e)": 3,
    "import contextlib\nwith contextlib.suppress(AssertionError):\n    assert f(3) == 9": 4,
    f"{TASK}    r = await asyncio.gather(t(), return_exceptions=True)\n    assert r == [None]\nasyncio.run(main())": 0,
    f"{HELPER}    yield\nlist(h())": 0,
    "try: assert f(3) == 9\nexcept AssertionError:\n    print('failed')\n    raise": 0,
    "n = 0\ntry:\n    assert f(3) == 9\n    n = 1\nexcept AssertionError: pass\nassert n == 1": 0,
    "try: f('a')\nexcept TypeError as e: assert str(e)": 0,
    "def same(a):\n    if isinstance(a, str): assert a == '9'\n    else: assert a == 9\nsame(f(3))": 0,
}


def test_every_style_passes_right_solutions_only(box: SharedBox) -> None:
    wrong = []
    for name, tests in {**STYLES, **ASYNCHRONOUS}.items():
        right = box.verdict("def f(x): return x * x", tests)
        mode = ("nonce", True) if name in ASYNCHRONOUS else ("split", False)
        if not right.passed or (right.mode, right.weak) != mode:
            wrong.append((name, right))
        if box.verdict("def f(x): return x + 1", tests).passed or box.wait(vacuous(box.sandbox, tests, "f")):
            wrong.append((name, "passes a wrong solution"))
    assert not wrong


def test_an_assert_beside_another_one_is_run_or_refused(box: SharedBox) -> None:
    first = "assert f(2) == 4\n"
    wrong = [tests for tests in HIDDEN if not box.verdict("def f(x): return x * x", first + tests).passed]
    wrong += [tests for tests in HIDDEN if box.verdict("def f(x): return x + 2", first + tests).passed]
    for tests, named in REFUSED.items():
        with pytest.raises(DataError) as caught:
            box.verdict("def f(x): return x * x", first + tests)
        wrong += [tests] if named not in str(caught.value) else []
    with pytest.raises(DataError, match="before they call 'f': ValueError"):
        box.verdict("def f(x): return x * x", "expected = int('four')\nassert f(2) == expected")
    assert not wrong


def test_vacuous_tests_are_found_with_the_line(box: SharedBox) -> None:
    wrong = []
    for tests, (line, behaviour) in VACUOUS.items():
        found = box.wait(vacuous(box.sandbox, tests, "f"))
        if found is None or found.line != line or behaviour not in found.reason:
            wrong.append((tests, found))
    assert not wrong


def test_asserts_whose_failure_is_not_seen_are_found_with_the_line(box: SharedBox) -> None:
    found = {tests: box.wait(vacuous(box.sandbox, f"assert f(2) == 4\n{tests}", "f")) for tests in UNSEEN}
    assert {tests: one.line if one else 0 for tests, one in found.items()} == UNSEEN


def test_work_in_place_is_judged_and_weak_unless_the_argument_must_stay(box: SharedBox) -> None:
    ways = (
        "f(x)\nassert x == [1, 2, 3]", "assert f(x) is None\nassert x == [1, 2, 3]",
        "assert f(x) is None and x == [1, 2, 3]", "r = f(x)\nassert x == [1, 2, 3]\nassert r is None",
        "assert (f(x), x) == (None, [1, 2, 3])", "f(x=x)\nassert x == [1, 2, 3]",
        "f(x)\nassert x[0] == 1 and len(x) == 3", "f(x)\nassert all(a <= b for a, b in zip(x, x[1:]))",
        "y = sorted(x)\nf(x)\nassert x == y", "def run(v): f(v)\nrun(x)\nassert x == [1, 2, 3]",
        "def run(v): return f(v)\ng = lambda v: run(v)\ng(x)\nassert x == [1, 2, 3]",
    )  # fmt: skip
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
    tests.append("def test_it():\n    x = [3, 1, 2]\n    f(x)\n    y = sorted(x)\n    assert x == y")
    tests.append(
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        x = [3, 1, 2]\n        f(x)\n"
        "        self.assertEqual(x, sorted(x))"
    )
    verdicts = box.verdicts((CLEARS, each) for each in tests)
    assert not [each for each, v in zip(tests, verdicts, strict=True) if v.passed and not v.weak]
