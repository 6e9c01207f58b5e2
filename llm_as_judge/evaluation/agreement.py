"""Agreement of the LLM judge alone with the rules, on answers that the rules decided."""

import asyncio
from collections.abc import Sequence

from llm_as_judge.events import RolloutEvent
from llm_as_judge.judging.calibration import Counts, count
from llm_as_judge.judging.judge import JudgeLike
from llm_as_judge.types import Execution, Problem, Verdict

#: Answers that are judged again.
LIMIT = 200


async def agreement(judge: JudgeLike, problems: Sequence[Problem], records: Sequence[RolloutEvent]) -> Counts:
    """Compares ``judge`` with the verdicts of ``records`` of ``problems``, which rules gave; code is left out."""
    known = [r for r in records if r.answer and r.correct is not None and not problems[r.index].reference.tests]

    async def verdict(record: RolloutEvent) -> Verdict:
        ran = Execution(record.outcome, record.answer, tuple(record.calls))
        return await judge.verdict(problems[record.index], ran.answer, ran.cut_off)

    asked = known[:: max(1, len(known) // LIMIT)][:LIMIT]
    verdicts = await asyncio.gather(*map(verdict, asked))
    return count("held out", [bool(record.correct) for record in asked], [verdict.correct for verdict in verdicts])
