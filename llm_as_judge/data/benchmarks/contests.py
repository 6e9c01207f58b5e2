"""APPS (Hendrycks et al. 2021) and LiveCodeBench (Jain et al. 2024): contest problems with pairs of input and output.

Raw fields of APPS: ``problem_id``; ``question``; ``starter_code``; ``solutions`` and ``input_output``, JSON in a text,
the latter with ``inputs``, ``outputs`` and, for a function, ``fn_name``. Pairs that the question shows are public. Of
LiveCodeBench: ``question_id``; ``question_content``; ``starter_code``; ``metadata`` with ``func_name``;
``public_test_cases`` and ``private_test_cases``, lists of ``input`` and ``output``, for a function JSON. The private
ones may be a zlib-compressed pickle in base64, which only the hidden tests unpickle, in their process in the sandbox.

Outputs are compared as by the official scorers: by lines, in LiveCodeBench with exact numbers (``1.0`` is ``1``), in
APPS without empty lines and with a relative error of 1e-5; but the order of words and lines always counts.
"""

import base64
import inspect
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from llm_as_judge.answers.code import PROGRAM
from llm_as_judge.data.code_tests import check_tests
from llm_as_judge.data.dataset import SOURCES, Dataset, has_fields
from llm_as_judge.data.record import Record, given_id, json_of, short, text_field
from llm_as_judge.errors import DataError, Untested
from llm_as_judge.types import Problem, Question, Reference

_MODULES = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "fractions", "operator", "io", "json", "typing", "builtins",
)  # fmt: skip
#: As in the official scorers, before a solution. Modules are bound last: ``datetime`` is the module.
_IMPORTS = "\n".join(f"from {name} import *" for name in _MODULES)
_IMPORTS += f"\nimport sys, time, {', '.join(_MODULES)}\n"
_IMPORTS += "sys.setrecursionlimit(50_000)\nsys.set_int_max_str_digits(50_000)"
_ASKED = (
    f"Write a whole Python program: it reads standard input and prints. In tests, {PROGRAM}(input) is what it prints."
)
#: All pairs are read before the first call: what is wrong with them is not the solution's fault.
_TESTS = """candidate = {name}
import base64, json, math, pickle, zlib
from decimal import Decimal
from collections.abc import Mapping
from typing import Any

{sources}
cases = [*map({read}, {cases})]
for given, wanted in cases:
    assert {compare}(candidate(*given), wanted, {lenient})
"""
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def parse_apps(record: Record) -> Problem:
    text, given = text_field(record, "question"), record.get("input_output")
    tests = json_of(record, "input_output", dict) if given not in (None, "") else {}
    if not tests:
        raise Untested(f"field 'input_output' is {short(given)}")
    function, inputs, outputs = tests.get("fn_name"), json_of(tests, "inputs", list), json_of(tests, "outputs", list)
    if function:
        values = [x if isinstance(x, list) else [x] for x in inputs]
        inputs, outputs = ["\n".join(map(json.dumps, x)) for x in values], [*map(json.dumps, outputs)]
    if not 0 < len(inputs) == len(outputs):
        raise DataError(f"field 'input_output' has {len(inputs)} inputs and {len(outputs)} outputs")
    both = (["\n".join(map(str, x)) if isinstance(x, list) else x for x in side] for side in (inputs, outputs))
    cases = [{"input": given, "output": wanted} for given, wanted in zip(*both, strict=True)]
    hidden, id_ = _packed(cases), record.get("problem_id")
    shown = [] if function else [case for case in cases if _is_example(case, text)]
    return _problem("apps", id_, record, text, function, shown, hidden)


def parse_livecodebench(record: Record) -> Problem:
    public, private = json_of(record, "public_test_cases", list), record.get("private_test_cases")
    hidden = f'json.loads(pickle.loads(zlib.decompress(base64.b64decode("{private}"))))'
    if not isinstance(private, str) or not _BASE64.fullmatch(private):
        hidden = _packed(json_of(record, "private_test_cases", list))
    function, cases = json_of(record, "metadata", dict).get("func_name"), f"{_packed(public)} + {hidden}"
    text, id_ = text_field(record, "question_content"), record.get("question_id")
    return _problem("livecodebench", id_, record, text, function, public, cases)


def _problem(
    dataset: str, id_: object, record: Record, text: str, function: str | None, public: Sequence[Record], cases: str
) -> Problem:
    """Make the problem whose hidden tests are the pairs of ``cases``, an expression; ``function`` None: a program."""
    name, starter = str(function or PROGRAM), str(record.get("starter_code") or "").rstrip()
    read, compare = (value_case, same_value) if function else (text_case, same_output)
    if starter:
        text = f"{text.rstrip()}\n\n```python\n{starter}\n```"
    shown = []
    for case in public:
        try:
            values, wanted = read(case)
        except (ValueError, RecursionError) as error:
            raise DataError(f"a test of {name!r} must be JSON, got {short(case)}: {error}") from None
        shown.append(f"assert {name}({', '.join(map(repr, values))}) == {wanted!r}")
    sources = f"{inspect.getsource(read)}\n{inspect.getsource(compare)}"
    told = {"name": name, "read": read.__name__, "compare": compare.__name__, "lenient": dataset == "apps"}
    tests = _TESTS.format(sources=sources, cases=cases, **told)
    public_tests = tuple(shown) or (f"assert callable({name})",)
    check_tests(tests, name, _IMPORTS, public_tests)
    asked = text if function else f"{text.rstrip()}\n\n{_ASKED}"
    question = Question(given_id(dataset, id_, text), asked, "code", "", name, public_tests, dataset, prelude=_IMPORTS)
    return Problem(question, Reference(tests=tests))


def _packed(cases: Sequence[Any]) -> str:
    """Write an expression of Python for pairs; sets of them have many megabytes."""
    for case in cases:
        if not isinstance(case, dict) or not all(isinstance(case.get(side), str) for side in ("input", "output")):
            raise DataError(f"a test must have 'input' and 'output' as text, got {short(case)}")
    data = base64.b64encode(zlib.compress(json.dumps(cases).encode())).decode()
    return f'json.loads(zlib.decompress(base64.b64decode("{data}")))'


def _is_example(case: Record, text: str) -> bool:
    """Tell whether lines of a text show the input, a heading with the word output, and the output."""
    given, wanted = (r"\s+".join(map(re.escape, case[side].split())) for side in ("input", "output"))
    example = rf"(?m)^\s*{given}\s*\n.*\b(?i:output)\b.*\n\s*{wanted}\s*$"
    return len(example) <= 2 * len(text) and re.search(example, text) is not None


def text_case(case: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Read a program's arguments and what it prints; runs with the tests, as text, like those below."""
    return [case["input"] + ""], "\n".join(map(str.strip, case["output"].strip().split("\n")))


def value_case(case: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Read a function's arguments and value; keys that are all whole numbers are numbers."""

    def keys(value: dict[str, Any]) -> dict[Any, Any]:
        return {int(key): x for key, x in value.items()} if all(map(str.isdecimal, value)) else value

    given = [json.loads(line, object_hook=keys) for line in case["input"].split("\n") if line.strip()]
    return given, json.loads(case["output"], object_hook=keys)


def same_output(said: Any, wanted: str, lenient: bool) -> bool:
    """Tell whether a program prints what is wanted."""

    def same(one: str, other: str) -> bool:
        words = [*zip(one.split(), other.split(), strict=True)]
        if lenient:
            return all(a == b or math.isclose(float(a), float(b), rel_tol=1e-5, abs_tol=1e-8) for a, b in words)
        return one == other or all(Decimal(a) == Decimal(b) for a, b in words)

    texts = (str(said).strip(), wanted)
    lines = ([line.strip() for line in text.split("\n") if line.strip() or not lenient] for text in texts)
    try:
        return all(same(*pair) for pair in zip(*lines, strict=True))
    except (ValueError, ArithmeticError):  # not as many lines or words, or no numbers
        return False


def same_value(said: Any, right: Any, lenient: bool) -> bool:
    """Tell whether a function returns what is wanted."""
    said = [*said] if isinstance(said, tuple) else said
    if lenient and said != right and isinstance(right, list) and right:  # in APPS a value may be in a list of its own
        right, said = right[0], [[*x] if isinstance(x, tuple) else x for x in said] if isinstance(said, list) else said
    return bool(said == right)


APPS = Dataset(
    domain="code", parse=parse_apps, metric="pass@k", source=SOURCES["apps"],
    recognises=has_fields("question", "input_output"),
    golds=lambda record: tuple(json_of(record, "solutions", list)[:1]) if record.get("solutions") else (),
)  # fmt: skip
LIVECODEBENCH = replace(
    APPS, parse=parse_livecodebench, source=SOURCES["livecodebench"],
    recognises=has_fields("question_content", "public_test_cases", "private_test_cases"),
)  # fmt: skip
