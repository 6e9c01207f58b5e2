"""HumanEval (Chen et al. 2021) and HumanEval+ (Liu et al. 2023): complete a Python function from its docstring.

Raw fields: ``task_id``; ``prompt`` (imports, helpers, signature, docstring); ``entry_point``; ``test`` (defines
``check(candidate)``); ``canonical_solution``. The docstring's examples with literal results (doctests, ``f(1) => 2``,
``f(1) should return 2``) are the public tests. Imports and helpers before the function are the prelude, because
solutions may not repeat them. HumanEval+ has a larger suite in ``test``, which compares with numpy.
"""

import ast
import re
from collections.abc import Sequence

from llm_as_judge.answers.code import one_error, quiet_parse
from llm_as_judge.data.code_tests import check_tests, syntax_tree
from llm_as_judge.data.dataset import OTHER, SOURCES, Dataset, derived
from llm_as_judge.data.record import Record, text_field
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    if record.get("plus_input"):
        raise DataError(
            "field 'plus_input' holds further tests, which are not read; use the file whose field 'test' has them "
            "(evalplus/humanevalplus or evalplus/mbppplus on the hub)"
        )
    task, prompt, entry_point = (text_field(record, key) for key in ("task_id", "prompt", "entry_point"))
    tree = syntax_tree("prompt", prompt)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry_point]
    if not functions:
        raise DataError(f"field 'prompt' does not define entry_point {entry_point!r}")
    tests, public = text_field(record, "test"), tuple(_examples(functions[-1], _WRONG_EXAMPLES.get(task, ())))
    prelude = "\n\n".join(ast.get_source_segment(prompt, node) or "" for node in tree.body if node is not functions[-1])
    check_tests(tests, entry_point, prelude, public)
    id_ = f"humaneval/{task.rsplit('/', 1)[-1]}"
    question = Question(
        id_, prompt, "code", entry_point=entry_point, public_tests=public, dataset="humaneval", prelude=prelude
    )
    return Problem(question, Reference(tests=tests))


def _published(record: Record) -> bool:
    task = str(record.get("task_id")).partition("/")
    return task[0] == "HumanEval" and task[2].isdigit() and int(task[2]) <= 163


#: Mistakes in the docstrings: examples that the published solution and the hidden tests contradict (47: the median is
#: 8.0; 116: sorted by the number of ones; 130: values instead of lists; 148: a one-tuple without its comma).
_WRONG_EXAMPLES = {
    "HumanEval/47": ("median([-10, 4, 6, 1000, 10, 20])",),
    "HumanEval/116": ("sort_array([1, 5, 2, 3, 4])", "sort_array([-2, -3, -4, -5, -6])"),
    "HumanEval/130": ("tri(1)", "tri(2)", "tri(4)"),
    "HumanEval/148": ("bf('Earth', 'Mercury')",),
}
# separators between a call and its result
_RESULT = re.compile(r"(?:#\s*)?(?:={1,3}>|-+>|={1,2}|➞|→|returns?\b|should return\b)\s*(?P<value>.+)")


def _examples(function: ast.FunctionDef, wrong: Sequence[str]) -> list[str]:
    """Write ``assert call == result`` for every example of the docstring whose result is a literal."""
    lines = (ast.get_docstring(function) or "").split("\n")
    asserts: dict[str, None] = {}
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        start = line.find(f"{function.name}(")
        call, rest = _call(line[start:]) if start >= 0 else (None, "")
        if call is None:
            continue
        result = _RESULT.fullmatch(rest)
        value = result["value"] if result else following if line.lstrip().startswith(">>>") and not rest else ""
        expected = _literal(value.strip())
        if expected and call not in wrong:
            asserts[f"assert {call} == {expected}"] = None
    return list(asserts)


def _call(text: str) -> tuple[str | None, str]:
    """Return the call with literal arguments that ``text`` begins with, or None, and the text after it."""
    for end in (i for i, char in enumerate(text, 1) if char == ")"):
        try:
            (statement,) = quiet_parse(text[:end]).body
        except SyntaxError:
            continue
        node = statement.value if isinstance(statement, ast.Expr) else statement
        if not isinstance(node, ast.Call):
            break
        free = [n for part in (*node.args, *node.keywords) for n in ast.walk(part) if isinstance(n, ast.Name)]
        return (None, "") if free or not node.args else (ast.unparse(node), text[end:].strip())
    return None, ""


def _literal(text: str) -> str | None:
    """Read ``text`` as a literal, or the literal that it ends with, as in ``19 - 5 - 6 = 8``."""
    for candidate in (text, text.rstrip("."), text.rpartition(" = ")[2]):
        candidate = {"true": "True", "false": "False"}.get(candidate, candidate)
        try:
            with one_error():
                return repr(ast.literal_eval(candidate))
        except (SyntaxError, TypeError):
            continue
    return None


DATASET = Dataset(
    domain="code",
    parse=parse,
    golds=lambda record: (text_field(record, "prompt") + text_field(record, "canonical_solution"),),
    recognises=lambda r: "prompt" in r and ("plus_input" in r or {"entry_point", "test"} <= r.keys()),
    metric="pass@k",
    variant=lambda record: "" if _published(record) else OTHER,
    source=SOURCES["humaneval"],
)
PLUS = derived(
    DATASET,
    "humaneval_plus",
    lambda record: DATASET.recognises(record) and _published(record) and "numpy" in str(record.get("test")),
)
