"""MBPP (Austin et al. 2021): short Python functions described in a sentence.

Raw fields: ``task_id``; ``text`` (``prompt`` in the sanitized split); ``code`` (the gold solution);
``test_list`` (asserts); ``test_setup_code`` or ``test_imports``; ``challenge_test_list``. The first assert is
public, all of them are hidden. ``test_setup_code`` runs after the solution, because records 367 and 927 build
its classes.
"""

from __future__ import annotations

import ast
import builtins
import re

from llm_as_judge.datasets.record import Record, list_of, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    """One MBPP task of either split."""
    asserts = [test.strip() for test in list_of(record, "test_list")]
    if not asserts:
        raise DataError("field 'test_list' is empty")
    setup = str(record.get("test_setup_code") or "").replace("\r\n", "\n")
    hidden = [*asserts, *(str(test).strip() for test in record.get("challenge_test_list") or [])]
    # ten gold solutions use math without importing it, so it is there for everybody
    imports = dict.fromkeys(["import math", *(str(line) for line in record.get("test_imports") or [])])
    if "task_id" not in record:
        raise DataError("field 'task_id' is missing")
    return Problem(
        Question(
            f"mbpp/{record['task_id']}",
            text_of(record, "prompt" if "prompt" in record else "text"),
            "code",
            entry_point=called_function(asserts[0], str(record.get("code") or "")),
            public_tests=(asserts[0],),
            dataset="mbpp",
        ),
        Reference(tests="\n".join([*([setup] if setup else []), *hidden]), prelude="\n".join(imports)),
    )


def called_function(test: str, code: str = "") -> str:
    """The function that ``test`` calls: one that ``code`` defines, else the first that is no builtin."""
    try:
        tree = ast.parse(test)
    except SyntaxError as error:
        raise DataError(f"test is not Python: {test!r}: {error}") from error
    called = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    defined = re.findall(r"^def (\w+)", code, re.MULTILINE)
    named = [name for name in called if name in defined] or [n for n in called if not hasattr(builtins, n)]
    if not named:
        raise DataError(f"test calls no function of its own: {test!r}")
    return named[0]
