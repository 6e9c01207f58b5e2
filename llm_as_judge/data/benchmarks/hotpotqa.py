"""HotpotQA (Yang et al. 2018), distractor setting: questions about 2 to 10 titled paragraphs.

Raw fields: ``_id`` (``id`` on the hub); ``question``; ``answer``; ``supporting_facts``; ``context``, a list
of ``[title, [sentence, ...]]``, or on the hub ``{"title": [...], "sentences": [[...], ...]}``.
"""

from llm_as_judge.data.dataset import OTHER, SOURCES, Dataset, has_fields
from llm_as_judge.data.record import Record, given_id, text_field
from llm_as_judge.errors import DataError
from llm_as_judge.types import Problem, Question, Reference


def parse(record: Record) -> Problem:
    """Parse one question with all its paragraphs. ``supporting_facts`` would reveal the distractors and is not used."""
    text, answer = text_field(record, "question"), text_field(record, "answer")
    id_ = given_id("hotpotqa", record.get("_id") or record.get("id"), text)
    context = "\n".join(_paragraphs(record))
    return Problem(Question(id_, text, "qa", context=context, dataset="hotpotqa"), Reference((answer,)))


def _paragraphs(record: Record) -> list[str]:
    raw = record.get("context")
    try:
        pairs = zip(raw["title"], raw["sentences"], strict=True) if isinstance(raw, dict) else raw or []
        paragraphs = [": ".join((title, "".join(sentences).strip())) for title, sentences in pairs]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"field 'context' must be a list of [title, [sentence, ...]]: {error}") from error
    if not paragraphs:
        raise DataError("field 'context' has no paragraphs")
    return paragraphs


DATASET = Dataset(
    domain="qa",
    parse=parse,
    golds=lambda record: (text_field(record, "answer"),),
    recognises=has_fields("question", "answer", "context", "supporting_facts"),
    metric="hotpotqa",
    judge_line="Names may be written in full or in part as long as only the same person, place or thing can be meant; "
    "yes and no must agree.",
    variant=lambda record: "" if "level" in record else OTHER,
    source=SOURCES["hotpotqa"],
)
