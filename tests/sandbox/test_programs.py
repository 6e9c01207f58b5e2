"""Whole programs: tests that call ``__main__(text)`` run apart from them, publicly and hidden."""

from typing import Any

import pytest
from shared_box import SharedBox, in_sandbox

from llm_as_judge.answers.code import PROGRAM, defines, defining_block
from llm_as_judge.sandbox.public_test import run_assert

SUMS = "n = int(input())\nprint(sum(map(int, input().split())))"
TESTS = f"assert {PROGRAM}('2\\n3 4\\n') == '7'\nassert {PROGRAM}('1\\n5') == '5'"


def test_programs_read_and_print_in_every_usual_way_and_run_anew_for_each_input(box: SharedBox) -> None:
    for source in (
        SUMS, f"def main():\n    {SUMS.replace(chr(10), chr(10) + '    ')}\nif __name__ == '__main__':\n    main()",
        "from sys import *\nstdin.readline()\nx = sum(map(int, stdin.read().split()))\nstdout.write(f' {x} \\n\\n')",
        "import sys\n_, *x = sys.stdin.buffer.read().split()\nsys.stdout.buffer.write(b'%d' % sum(map(int, x)))",
        "_, *x = map(int, open(0).read().split())\nprint(sum(x))",
        f"import sys\n{SUMS}\nsys.stdout.close()\nsys.exit(3)",
        "import sys\nprint(sum(int(w) for line in list(sys.stdin)[1:] for w in line.split()))",
        f"from dataclasses import *\n@dataclass\nclass A:\n    x: int\nprint = lambda x, p=print: p(A(x).x)\n{SUMS}",
        f"seen = globals().setdefault('seen', 0) + 1\nassert seen == 1\n{SUMS}",
        # by descriptor, as fast readers do; the whole input again
        "import os\n_, *x = map(int, os.read(0, os.fstat(0).st_size).split())\nos.write(1, b'%d'%sum(x))\nos._exit(1)",
        "import io, sys\n_, *x = map(int, io.open(sys.stdin.fileno()).read().split())\nopen(1, 'w').write(str(sum(x)))",
        "import fileinput, pathlib, sys\n*_, last = fileinput.input()\nsys.__stdin__.seek(0)\n"
        "assert pathlib.Path('/dev/stdin').read_text().endswith(last)\nsys.stdin.buffer.raw.seek(0)\n"
        f"{SUMS.replace('print(', 'print(file=sys.__stdout__, *[')[:-1]}])",
        # buffers and functions that are left at the end
        f"import io, sys\nsys.stdout = io.TextIOWrapper(io.BufferedWriter(sys.stdout.buffer))\n{SUMS}\nexit()",
        "import atexit, io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\natexit.register(lambda: print(x))\n"
        "n, x = input(), sum(map(int, input().split()))",
        # a deep recursion in a thread with a large stack; its own module
        "import resource, sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, -1))\ndeep = lambda n: n and 1 + deep(n - 1)\n"
        f"def main():\n    assert deep(50_000)\n    {SUMS.replace(chr(10), chr(10) + '    ')}\n    exit()\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
        f"import pickle, __main__\nclass A: 1\nassert __main__.A and pickle.loads(pickle.dumps(A()))\n{SUMS}\nquit(3)",
    ):  # fmt: skip
        found = box.verdict(source, TESTS, PROGRAM)
        assert (found.passed, found.mode, found.weak, found.error) == (True, "split", False, ""), source


def test_what_a_program_does_wrong_is_its_own_fault(box: SharedBox) -> None:
    for source, outcome, error in (
        ("print(0)", "raised", "AssertionError"), ("def __main__(x):\n    return '7'", "raised", "AssertionError"),
        ("input()\n1 / 0", "raised", "ZeroDivisionError"), ("print(", "raised", "SyntaxError"),
        ("input(); input(); input()", "raised", "EOFError"), ("while True: pass", "timeout", ""),
        ("print('x' * 5_000_000)", "output_limit", "4000000 bytes"), ("import os\nos._exit(0)", "raised", ""),
        ("while True: print('x' * 99999)", "memory", ""),
    ):  # fmt: skip
        found = box.verdict(source, TESTS, PROGRAM)
        assert not found.passed and found.outcome == outcome and error in found.error, (source, found)


SPY = """
import gc, re, sys
seen = [repr(o)[:10**6] for o in gc.get_objects() if isinstance(o, (str, bytes, list, tuple, dict))]
frame = sys._getframe()
while frame:
    seen += [repr(frame.f_locals), repr(frame.f_globals)]
    frame = frame.f_back
print(*{found for text in seen for found in re.findall("KEY-[0-9]+", text)})
"""


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
