"""Verdicts: no forgery passes, right solutions do, and what cannot be split is known and marked."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forgeries import KNOWN, OWN

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.problems import load_file
from llm_as_judge.errors import DataError
from llm_as_judge.sandbox.host import CodeVerdict, Sandbox
from llm_as_judge.sandbox.verdict import plan

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CHECK = """
def check(candidate):
    assert candidate(2) == 4
    assert candidate(3) == 9
    assert candidate(-5) == 25
"""
ASSERTS = "assert f(2) == 4\nassert f(3) == 9\nassert f(-5) == 25"
CATCH = "try:\n    f(1)\nexcept"
FORGERIES = {**KNOWN, **OWN}

loop: asyncio.AbstractEventLoop
box: Sandbox


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(SandboxConfig(cpu_seconds=2, wall_seconds=4))
    loop.run_until_complete(box.start())
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


def verdict(solution: str, tests: str, entry_point: str = "f", **kwargs: Any) -> CodeVerdict:
    return loop.run_until_complete(box.verdict(solution, tests, entry_point, **kwargs))


# Forgeries


def test_there_are_as_many_forgeries_as_are_claimed() -> None:
    assert len(KNOWN) >= 17 and len(OWN) >= 5


@pytest.mark.parametrize("tests", [CHECK, ASSERTS], ids=["check", "asserts"])
def test_no_forgery_passes(tests: str) -> None:
    async def judge() -> list[CodeVerdict]:
        return await asyncio.gather(*(box.verdict(solution, tests, "f") for solution in FORGERIES.values()))

    verdicts = dict(zip(FORGERIES, loop.run_until_complete(judge()), strict=True))
    assert not [name for name, v in verdicts.items() if v.passed or v.weak or v.mode != "split" or v.outcome == "fault"]


def test_forgeries_do_pass_where_tests_and_solution_share_a_process() -> None:
    async def judge() -> list[CodeVerdict]:
        return await asyncio.gather(
            *(
                box._nonce_verdict({"source": solution, "prelude": "", "entry_point": "f"}, CHECK, "")
                for solution in FORGERIES.values()
            )
        )

    verdicts = dict(zip(FORGERIES, loop.run_until_complete(judge()), strict=True))
    passed = {name for name, v in verdicts.items() if v.passed}
    assert {"always equal", "an int that is always equal", "a truthy comparison", "the nonce from the frames"} <= passed
    assert all(v.weak for v in verdicts.values())


def test_a_verdict_of_a_sandbox_that_isolates_nothing_is_weak() -> None:
    async def judge() -> CodeVerdict:
        async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
            return await sandbox.verdict("def f(x): return x * x", CHECK, "f")

    assert asyncio.run(judge()).weak


def test_a_solution_never_sees_an_expected_value() -> None:
    seen = """
import gc
def f(x):
    if any(isinstance(o, (str, bytes)) and "EXPEC" + "TED" in str(o) for o in gc.get_objects()): return "EXPEC" + "TED"
    for o in gc.get_objects():
        if isinstance(o, (dict, list)) and "EXPEC" + "TED" in repr(o)[:10**6]: return "EXPEC" + "TED"
"""
    assert not verdict(seen, "assert f(1) == 'EXPECTED'").passed


def test_changing_the_argument_does_not_change_what_it_is_compared_with() -> None:
    tests = "x = [3, 1, 2]\nassert f(x) == sorted(x)"
    assert not verdict("def f(x):\n    x.clear()\n    return []", tests).passed
    assert verdict("def f(x): return sorted(x)", tests).passed


SPEAKS_ITSELF = """
import json, os, time
def frame(message):
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body
os.write(3, frame({"ready": True}))
os.write(3, frame({"value": [], "arguments": [[[]], {"x": []}]}) * 4)
time.sleep(2)
"""


@pytest.mark.parametrize(
    "tests",
    [
        "x = [3, 1, 2]\nassert f(x) == sorted(x)",
        "x = [3, 1, 2]\ny = f(x)\nassert y == sorted(x)",
        "x = [3, 1, 2]\nassert f(x=x) == sorted(x)",
        "x = [3, 1, 2]\nif f(x) != sorted(x): raise AssertionError",
        "def check(candidate):\n    for x in [[3, 1, 2]]:\n        assert candidate(x) == sorted(x)",
        "def same(a, b): assert a == b\nx = [3, 1, 2]\nsame(f(x), sorted(x))",
    ],
)
def test_a_solution_that_changes_arguments_over_the_protocol_does_not_pass(tests: str) -> None:
    for solution in (SPEAKS_ITSELF, "def f(x):\n    x.clear()\n    return []"):
        result = verdict(solution, tests)
        assert (result.passed, result.mode, result.weak) == (False, "split", False), result
    assert verdict("def f(x): return sorted(x)", tests).passed
    assert not verdict("def f(x): return sorted(x)", tests).weak


@pytest.mark.parametrize(
    "error", ["StopIteration", "StopAsyncIteration", "GeneratorExit", "type('S', (StopIteration,), {})"]
)
def test_an_error_of_the_solution_does_not_end_a_loop_of_the_tests(error: str) -> None:
    solution = f"def f(x): raise {error}"
    for tests in (
        "assert all(map(f, [1, 2]))",
        "for y in map(f, [1, 2]): assert y == 5",
        "assert list(map(f, [1])) == []",
    ):
        assert not verdict(solution, tests).passed
    generator = f"def f(x):\n    yield 1\n    raise {error}"
    assert not verdict(generator, "assert list(f(1)) == [1]").passed


# In-place work


@pytest.mark.parametrize(
    ("tests", "weak"),
    [
        ("f(x)\nassert x == [1, 2, 3]", False),
        ("assert f(x) is None\nassert x == [1, 2, 3]", False),
        ("assert f(x) is None and x == [1, 2, 3]", False),
        ("r = f(x)\nassert x == [1, 2, 3]\nassert r is None", False),
        ("assert (f(x), x) == (None, [1, 2, 3])", False),
        ("f(x=x)\nassert x == [1, 2, 3]", False),
        ("f(x)\nassert x[0] == 1 and len(x) == 3", False),
        ("f(x)\nassert x == sorted(x)", True),
        ("f(x)\nassert all(a <= b for a, b in zip(x, x[1:]))", True),
        ("y = sorted(x)\nf(x)\nassert x == y", True),
    ],
)
def test_work_in_place_is_seen_and_weak_where_it_is_its_own_measure(tests: str, weak: bool) -> None:
    tests = f"x = [3, 1, 2]\n{tests}"
    result = verdict("def f(x): x.sort()", tests)
    assert (result.passed, result.mode, result.weak) == (True, "split", weak), result
    for wrong in ("def f(x): return sorted(x)", "def f(x): x.reverse()"):
        assert not verdict(wrong, tests).passed


def test_a_test_that_the_argument_is_left_alone_is_kept() -> None:
    tests = "x = [3, 1, 2]\nassert f(x) == [1, 2, 3]\nassert x == [3, 1, 2]"
    right = verdict("def f(x): return sorted(x)", tests)
    assert (right.passed, right.weak) == (True, False)
    assert not verdict("def f(x):\n    x.sort()\n    return x", tests).passed


# Honest solutions


@pytest.mark.parametrize("tests", [CHECK, ASSERTS, "x = f\n" + ASSERTS + "\nassert x is f"])
def test_a_future_import_may_come_first_though_there_is_a_prelude(tests: str) -> None:
    solution = "from __future__ import annotations\ndef f(x: Unknown) -> Unknown: return square(x)"
    assert verdict(solution, tests, prelude="import math\ndef square(x): return x * x").passed


@pytest.mark.parametrize(
    ("solution", "tests"),
    [
        (
            "def f():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b",
            "import itertools\nassert list(itertools.islice(f(), 10)) == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]\n"
            "assert next(x for x in f() if x > 10**50) > 10**50",
        ),
        ("def f():\n    yield 6\n    yield 28\n    while True: pass", "g = f()\nassert [next(g), next(g)] == [6, 28]"),
        ("def f(n):\n    yield from range(n)", "assert sum(f(50_000)) == 1249975000"),
        ("def f(n):\n    yield n\n    raise KeyError(n)",
         "g = f(1)\nassert next(g) == 1\ntry: next(g)\nexcept KeyError: pass\nelse: assert 0"),
        ("def f():\n    return {'a': iter([1, 2]), 'b': (x for x in 'xy')}",
         "r = f()\nassert list(r['a']) == [1, 2] and list(r['b']) == ['x', 'y']"),
        ("def f():\n    yield from ((n, [n]) for n in range(3))", "assert dict(f()) == {0: [0], 1: [1], 2: [2]}"),
        ("def f(): return (x for x in [1])", "import types\nassert isinstance(f(), types.GeneratorType)"),
    ],
)  # fmt: skip
def test_iterators_give_what_is_asked_of_them(solution: str, tests: str) -> None:
    result = verdict(solution, tests)
    assert (result.passed, result.mode, result.weak) == (True, "split", False), result


def test_an_iterator_without_items_or_end_is_no_value() -> None:
    solution = SPEAKS_ITSELF.replace('"value": []', '"value": {"t": "stream", "v": 0}, "items": []')
    result = verdict(solution, "assert list(f(1)) == []")
    assert (result.passed, result.outcome) == (False, "raised") and "no value" in result.error


@pytest.mark.parametrize("tests", ["assert f('ab').group() == 'a'", "m = f('ab')\nassert m.group() == 'a'"])
def test_tests_that_look_into_a_returned_object_share_its_process(tests: str) -> None:
    solution = "import re\ndef f(x): return re.match('a', x)"
    result = verdict(solution, tests)
    assert (result.passed, result.mode, result.weak) == (True, "nonce", True)
    assert "look at .group" in result.obstacle
    for split in (
        "assert f('ab').strip() == 'ab'",
        "m = f('ab')\nassert m.count('a') == 1",
        "assert f('ab')[0].upper() == 'A'",
    ):
        assert verdict("def f(x): return x", split).mode == "split"


# What may cross


@pytest.mark.parametrize(
    "value",
    [
        "None", "True", "-7", "2**200", "1.5", "float('inf')", "1e-320", "'é\\n'", "b'x'", "bytearray(b'x')",
        "1 + 2j", "[1, [2]]", "(1, (2,))", "{1, 2}", "frozenset([1])", "{'a': {1: (2,)}}", "{(1, 2): [3]}",
        "range(3)", "slice(1, None)", "...", "int", "__import__('decimal').Decimal('1.10')",
        "__import__('fractions').Fraction(1, 3)", "__import__('datetime').datetime(2026, 1, 2, 3)",
        "__import__('datetime').date(2026, 1, 2)", "__import__('datetime').timedelta(1, 2, 3)",
        "__import__('collections').deque([1, 2])", "{1: 2}.keys()", "{1: 2}.items()",
    ],
)  # fmt: skip
def test_a_value_is_the_same_on_both_sides(value: str) -> None:
    tests = f"expected = {value}\nassert f(expected) == expected\nassert type(f(expected)) is type(expected)"
    result = verdict(
        "def f(x): return x", tests.rpartition("\n")[0] + "\nassert isinstance(f(expected), type(expected))"
    )
    assert (result.passed, result.mode) == (True, "split"), result


@pytest.mark.parametrize(
    ("solution", "tests"),
    [
        ("def f(x):\n    yield from range(x)", "assert list(f(3)) == [0, 1, 2]\nassert next(f(3)) == 0"),
        ("import itertools\ndef f(): return itertools.count()", "assert next(f()) == 0"),
        ("import collections\ndef f(x): return collections.Counter(x)", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("import re\ndef f(x): return re.match('a', x)", "assert f('a')\nassert not f('b')"),
        ("import collections\nP = collections.namedtuple('P', 'x y')\ndef f(): return P(1, 2)", "assert f() == (1, 2)"),
        ("def f(x):\n    x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]"),
        ("def f(x, *, y=1): return x + y", "assert f(1) == 2\nassert f(x=1, y=2) == 3"),
        ("def f(x): raise OSError('no')", f"{CATCH} OSError as e:\n    assert str(e) == 'no'\nelse:\n    assert 0"),
        ("class E(KeyError): pass\ndef f(x): raise E(1)", f"{CATCH} KeyError:\n    pass\nelse:\n    assert 0"),
        ("n = 0\ndef f():\n    global n\n    n += 1\n    return n", "assert [f(), f(), f()] == [1, 2, 3]"),
        ("def f(x): return x", "assert f(None) is None"),
        ("def f(x): return x * x", "assert list(map(f, [1, 2])) == [1, 4]"),
        ("import math\ndef f(x): return x / 3", "assert math.isclose(f(1), 1 / 3)"),
    ],
)  # fmt: skip
def test_ordinary_tests_are_split(solution: str, tests: str) -> None:
    result = verdict(solution, tests)
    assert (result.passed, result.mode, result.weak) == (True, "split", False), result


@pytest.mark.parametrize(
    ("solution", "tests"),
    [
        ("def f(x): return [1, 2]", "assert f(1) == (1, 2)"),
        ("def f(x): return range(2)", "assert f(1) == [0, 1]"),
        ("import re\ndef f(x): return re.match('a', x)", "assert f('a') == 'a'"),
        ("def f(x):\n    while True: pass", "assert f(1) == 1"),
    ],
)
def test_what_is_not_equal_in_one_process_is_not_in_two(solution: str, tests: str) -> None:
    result = verdict(solution, tests)
    assert (result.passed, result.mode) == (False, "split"), result


@pytest.mark.parametrize(
    ("tests", "obstacle"),
    [
        ("assert f(Node(1)) == 1", "Node of the solution"),
        ("assert f(lambda x: x) == 1", "cannot cross"),
        ("x = []\nassert f(x) is x", "identities"),
        ("assert f(1)(2) == 3", "call what the function returns"),
        ("assert f.__doc__", "the function itself"),
        ("import asyncio\nasync def main(): assert await f(1) == 1\nasyncio.run(main())", "asynchronous"),
        (
            "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as o: f(1)\nassert o",
            "redirect_stdout",
        ),
        ("from solution import f\nassert f(1) == 1", "import the solution"),
    ],
)
def test_tests_that_cannot_be_split_are_judged_weakly_and_say_why(tests: str, obstacle: str) -> None:
    solution = """class Node:
    def __init__(s, v): s.v = v
class R:
    def __eq__(s, o): return True
    def __call__(s, x): return 3
    def __await__(s):
        return 1
        yield
def f(x):
    'doc'
    return x if isinstance(x, list) else R()
"""
    result = verdict(solution, tests)
    assert (result.mode, result.weak) == ("nonce", True)
    assert obstacle in result.obstacle


def test_the_tests_alone_decide_how_they_are_run() -> None:
    """A solution that could choose the weak way would choose it."""
    for solution in ("f = 3", "class f:\n    def __init__(s, x): pass", "def f(x): return f", "f = None\ndel f"):
        assert verdict(solution, CHECK).mode == "split"


def test_tests_that_prove_nothing_are_refused() -> None:
    for tests in ("assert True", "x = 1", "assert g(2) == 4"):
        with pytest.raises(DataError, match="never use it"):
            verdict("def f(x): return x", tests)
    deep = "assert f(1) == " + "(" * 900 + "1" + ")" * 900, "assert f(1) == " + "+".join(["1"] * 50_000)
    for tests in ("assert f(", "assert f(1) == '\0'", *deep):
        with pytest.raises(DataError, match="not Python"):
            verdict("def f(x): return x", tests)


def test_modules_the_tests_take_for_imported_are_there() -> None:
    assert plan("assert f(1) == sys.maxsize", "", "f").modules == ("sys",)


# The benchmarks' own solutions


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no benchmark samples at {path}")
    return path


def judge_all(path: Path, solutions: list[str]) -> dict[str, CodeVerdict]:
    async def judge() -> list[CodeVerdict]:
        async with Sandbox(SandboxConfig(cpu_seconds=30, wall_seconds=90)) as sandbox:
            return await asyncio.gather(
                *(
                    sandbox.verdict(
                        solution, p.reference.tests, p.question.entry_point or "", prelude=p.reference.prelude
                    )
                    for p, solution in zip(problems, solutions, strict=True)
                )
            )

    problems = load_file(path)
    return {p.question.id: v for p, v in zip(problems, asyncio.run(judge()), strict=True)}


def test_humaneval_canonical_solutions_pass_and_empty_bodies_do_not() -> None:
    path = real("humaneval/HumanEval.jsonl.gz")
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    right = judge_all(path, [r["prompt"] + r["canonical_solution"] for r in records])
    assert len(right) == 164
    assert not [name for name, v in right.items() if not v.passed or v.weak]
    empty = judge_all(path, [r["prompt"] + "    pass\n" for r in records])
    assert not [name for name, v in empty.items() if v.passed or v.weak]


@pytest.mark.parametrize(
    ("name", "count", "weak"),
    [
        # These three build objects of the solution's own classes.
        ("mbpp/mbpp.jsonl", 974, {"mbpp/367", "mbpp/601", "mbpp/927"}),
        ("mbpp/sanitized-mbpp.json", 427, set()),
    ],
)
def test_mbpp_solutions_pass(name: str, count: int, weak: set[str]) -> None:
    path = real(name)
    text = path.read_text(encoding="utf-8")
    records = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    verdicts = judge_all(path, [record["code"] for record in records])
    assert len(verdicts) == count
    assert not [name for name, v in verdicts.items() if not v.passed]
    assert {name for name, v in verdicts.items() if v.weak} == weak
