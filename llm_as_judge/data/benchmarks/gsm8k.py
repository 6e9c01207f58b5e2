"""GSM8K (Cobbe et al. 2021): grade-school word problems with one number as the answer.

Raw fields: ``question``; ``answer``, a solution whose last line is ``#### N`` (N may have thousands separators).
"""

from llm_as_judge.data.dataset import OTHER, Dataset, source_of
from llm_as_judge.data.record import Record, content_id, text_of
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    question, solution = text_of(record, "question"), text_of(record, "answer")
    _, mark, answer = solution.rpartition("####")
    answer = answer.strip().replace(",", "").lstrip("$")
    if not mark or not answer:
        raise DataError("field 'answer' has no '#### N' line")
    return Problem(Question(content_id("gsm8k", question), question, "math", dataset="gsm8k"), Reference((answer,)))


DATASET = Dataset(
    domain="math",
    parse=parse,
    golds=lambda record: (text_of(record, "answer"),),
    recognises=lambda record: "question" in record and "#### " in str(record.get("answer", "")),
    metric="gsm8k",
    judge_line="The answer is one number: it must be exactly equal; a missing or extra unit does not matter.",
    variant=lambda record: "" if "<<" in str(record["answer"]) else OTHER,
    source=source_of("gsm8k"),
)
