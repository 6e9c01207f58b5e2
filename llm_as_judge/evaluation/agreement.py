"""Agreement of the LLM judge alone with the rules, on answers that the rules decided."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llm_as_judge.judging.judge import JudgeLike
from llm_as_judge.types import Rollout

#: Answers that are judged again.
LIMIT = 200


@dataclass(frozen=True, slots=True)
class Agreement:
    pairs: int
    agreement: float | None  # share of the decided pairs
    false_accepts: int
    false_rejects: int
    abstained: int


async def agreement(judge: JudgeLike, rollouts: Sequence[Rollout]) -> Agreement:
    """Compares ``judge`` with the verdicts of ``rollouts``, which rules gave; code is left out."""
    known = [r for r in rollouts if r.execution.answer and not r.problem.reference.tests]
    asked = known[:: max(1, len(known) // LIMIT)][:LIMIT]
    verdicts = await asyncio.gather(*(judge.verdict(r.problem, r.execution.answer, r.execution.cut_off) for r in asked))
    pairs = Counter((r.verdict.correct, v.correct) for r, v in zip(asked, verdicts, strict=True))
    decided = sum(n for (_, v), n in pairs.items() if v is not None)
    return Agreement(
        pairs=len(asked),
        agreement=(pairs[True, True] + pairs[False, False]) / decided if decided else None,
        false_accepts=pairs[False, True],
        false_rejects=pairs[True, False],
        abstained=len(asked) - decided,
    )
