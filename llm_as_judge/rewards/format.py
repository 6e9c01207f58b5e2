"""Format: half for a workflow without lint findings, half for an answer that is only the answer."""

from __future__ import annotations

from collections.abc import Sequence

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.types import Domain, Finding

_LONGEST = {"math": 100, "qa": 200}


def answer_format(answer: str | None, domain: Domain, findings: Sequence[Finding]) -> float:
    """10, 5 or 0: 5 for no ``findings`` of lint and 5 for a clean answer."""
    return 5.0 * (not findings) + 5.0 * is_clean(answer, domain)


def is_clean(answer: str | None, domain: Domain) -> bool:
    """Code that parses as Python as it stands; else one short line with nothing around the answer."""
    if answer is None or not answer.strip():
        return False
    if domain == "code":
        try:
            quiet_parse(answer)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True
    text = answer.strip()
    return len(text) <= _LONGEST[domain] and "\n" not in text and extract_answer(text, domain) == text
