"""MBPP (Austin et al. 2021) and MBPP+ (Liu et al. 2023): short Python functions described in a sentence.

Raw fields: ``task_id``; ``text`` (``prompt`` in the sanitized split); ``code`` (the gold solution);
``test_list`` (asserts); ``test_setup_code`` or ``test_imports``; ``challenge_test_list``. The first assert is
public, all of them are hidden; MBPP+ has a larger hidden suite in ``test``. ``test_setup_code`` runs after the
solution, because the setup of tasks 367 and 927 uses classes that the solution defines.
"""

from llm_as_judge.data.code_tests import check_tests, tested_function
from llm_as_judge.data.dataset import SOURCES, Dataset, derived
from llm_as_judge.data.record import Record, list_of, optional_text, plain_lines, short, text_field
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    asserts = _lines(record, "test_list")
    if not asserts:
        raise DataError("field 'test_list' is empty")
    setup = optional_text(record, "test_setup_code").strip()
    hidden = [*asserts, *_lines(record, "challenge_test_list")]
    # ten gold solutions use math without importing it
    tests = optional_text(record, "test") or "\n".join([*([setup] if setup else []), *hidden])
    prelude = "\n".join(dict.fromkeys(["import math", *_lines(record, "test_imports")]))
    entry_point = tested_function("\n".join(asserts), optional_text(record, "code"))
    check_tests(tests, entry_point, prelude, (asserts[0],))
    id_, text = f"mbpp/{_task_id(record)}", text_field(record, "prompt" if "prompt" in record else "text")
    question = Question(
        id_, text, "code", entry_point=entry_point, public_tests=(asserts[0],), dataset="mbpp", prelude=prelude
    )
    return Problem(question, Reference(tests=tests))


def split_of(record: Record) -> str:
    """Return the published split of a task, given by its number (Austin et al. 2021, §2.1)."""
    number = _task_id(record)
    return "prompt" if number <= 10 else "test" if number <= 510 else "validation" if number <= 600 else "train"


def _task_id(record: Record) -> int:
    number = record.get("task_id")
    if isinstance(number, bool) or not isinstance(number, int):
        raise DataError(f"field 'task_id' must be a whole number, got {short(number)}")
    return number


def _lines(record: Record, key: str) -> list[str]:
    return [plain_lines(line).strip() for line in list_of({key: record.get(key) or []}, key) if line.strip()]


DATASET = Dataset(
    domain="code",
    parse=parse,
    golds=lambda record: (text_field(record, "code"),),
    recognises=lambda record: "test_list" in record and bool({"text", "prompt"} & record.keys()),
    metric="pass@k",
    split_of=split_of,
    source=SOURCES["mbpp"],
)
PLUS = derived(DATASET, "mbpp_plus", lambda record: DATASET.recognises(record) and bool(record.get("test")))
