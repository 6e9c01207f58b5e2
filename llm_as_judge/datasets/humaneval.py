"""HumanEval (Chen et al. 2021): complete a Python function from its signature and docstring.

Raw fields: ``task_id``; ``prompt`` (imports, helpers, signature, docstring); ``entry_point``; ``test``
(defines ``check(candidate)``); ``canonical_solution``. The docstring's ``>>>`` examples with literal results
are the public tests; the helpers and imports before the function are the prelude, for solutions that do not
repeat them.
"""

from __future__ import annotations

import ast
import doctest

from llm_as_judge.datasets.record import Record, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    """One HumanEval task."""
    prompt, entry_point = text_of(record, "prompt"), text_of(record, "entry_point")
    try:
        tree = ast.parse(prompt)
    except SyntaxError as error:
        raise DataError(f"field 'prompt' is not Python: {error}") from error
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry_point]
    if not functions:
        raise DataError(f"field 'prompt' does not define entry_point {entry_point!r}")
    prelude = "\n\n".join(ast.get_source_segment(prompt, node) or "" for node in tree.body if node is not functions[-1])
    return Problem(
        Question(
            f"humaneval/{text_of(record, 'task_id').rsplit('/', 1)[-1]}",
            prompt,
            "code",
            entry_point=entry_point,
            public_tests=tuple(_examples(functions[-1])),
            dataset="humaneval",
        ),
        Reference(tests=text_of(record, "test"), prelude=prelude),
    )


def _examples(function: ast.FunctionDef) -> list[str]:
    """``assert call == result`` for every docstring example whose result is a literal."""
    try:
        examples = doctest.DocTestParser().get_examples(ast.get_docstring(function) or "")
    except ValueError:  # an example broken over lines, as in HumanEval/51
        return []
    asserts = []
    for example in examples:
        try:
            call = ast.parse(example.source.strip(), mode="eval").body
            expected = ast.literal_eval(example.want.strip())
        except (SyntaxError, ValueError):
            continue
        names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
        if function.name in names:
            asserts.append(f"assert {ast.unparse(call)} == {expected!r}")
    return asserts
