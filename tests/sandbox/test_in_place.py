"""Verdicts on functions that work in place: changed arguments count only if the tests look at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_box import SharedBox, shared_box

SORTS = "def f(x): x.sort()"


@pytest.fixture(scope="module")
def box() -> Iterator[SharedBox]:
    with shared_box(cpu_seconds=2, wall_seconds=4) as box:
        yield box


def test_work_in_place_is_judged_and_weak(box: SharedBox) -> None:
    wrong = []
    for tests in (
        "f(x)\nassert x == [1, 2, 3]",
        "assert f(x) is None\nassert x == [1, 2, 3]",
        "assert f(x) is None and x == [1, 2, 3]",
        "r = f(x)\nassert x == [1, 2, 3]\nassert r is None",
        "assert (f(x), x) == (None, [1, 2, 3])",
        "f(x=x)\nassert x == [1, 2, 3]",
        "f(x)\nassert x[0] == 1 and len(x) == 3",
        "f(x)\nassert all(a <= b for a, b in zip(x, x[1:]))",
        "y = sorted(x)\nf(x)\nassert x == y",
        "def run(v): f(v)\nrun(x)\nassert x == [1, 2, 3]",
        "def run(v): return f(v)\ng = lambda v: run(v)\ng(x)\nassert x == [1, 2, 3]",
    ):
        tests = f"x = [3, 1, 2]\n{tests}"
        right = box.verdict(SORTS, tests)
        if (right.passed, right.mode, right.weak) != (True, "split", True):
            wrong.append((tests, right))
        for solution in ("def f(x): return sorted(x)", "def f(x): x.reverse()"):
            if box.verdict(solution, tests).passed:
                wrong.append((tests, solution))
    assert not wrong


def test_no_way_of_calling_the_function_hides_that_a_verdict_is_weak(box: SharedBox) -> None:
    calls = [
        "f(x)",
        "def run(v): f(v)\nrun(x)",
        "def run(v): return f(v)\nrun(x)",
        "run = lambda v: f(v)\nrun(x)",
        "g = f\ng(x)",
        "import functools\nfunctools.partial(f, x)()",
        "list(map(f, [x]))",
        "for y in [x]: f(y)",
        "class T:\n    def run(self, v): f(v)\nT().run(x)",
    ]
    measures = [
        "assert x == sorted(x)",
        "assert (x == sorted(x)) == True",
        "ok = x == sorted(x)\nassert ok == True",
        "assert eval('x == sorted(x)') == True",
        "assert all(a <= b for a, b in zip(x, x[1:])) == True",
    ]
    tests = [f"x = [3, 1, 2]\n{call}\n{measure}" for call in calls for measure in measures]
    tests.append("def test_it():\n    x = [3, 1, 2]\n    f(x)\n    y = sorted(x)\n    assert x == y")
    tests.append(
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        x = [3, 1, 2]\n        f(x)\n"
        "        self.assertEqual(x, sorted(x))"
    )
    verdicts = box.verdicts(["def f(x): x.clear()"] * len(tests), tests)
    assert not [t for t, v in zip(tests, verdicts, strict=True) if v.passed and not v.weak]


def test_a_test_that_the_argument_is_left_unchanged_is_kept(box: SharedBox) -> None:
    tests = "x = [3, 1, 2]\nassert f(x) == [1, 2, 3]\nassert x == [3, 1, 2]"
    right = box.verdict("def f(x): return sorted(x)", tests)
    assert (right.passed, right.weak) == (True, False)
    assert not box.verdict("def f(x):\n    x.sort()\n    return x", tests).passed
