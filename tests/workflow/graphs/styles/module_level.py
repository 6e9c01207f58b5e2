from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)
INSTRUCTION = "Think step by step. End with 'Answer: <result>'."
PATTERN = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
llm = create_llm_instance({})
review = operator.Review(llm)


def last_answer(text: str) -> str:
    found = PATTERN.findall(text)
    return found[-1].strip() if found else text.strip()


@dataclass
class Candidate:
    text: str
    votes: int = 0
    notes: list[str] = field(default_factory=list)


class Base:
    def __init__(self, name: str, llm_config: dict, dataset: str | None = None):
        self.custom = operator.Custom(llm)
        self.review = review

    async def solve(self, problem: str) -> str:
        result = await self.custom(input=problem, instruction=INSTRUCTION)
        return last_answer(result["response"])


class Workflow(Base):
    async def __call__(self, problem: str) -> tuple[str, float]:
        started = time.perf_counter()
        candidates: list[Candidate] = []
        for _ in range(2):
            candidate = Candidate(await self.solve(problem))
            verdict = await self.review(problem=problem, solution=candidate.text)
            candidate.votes += int(verdict["review_result"])
            candidate.notes.append(verdict["feedback"])
            candidates.append(candidate)
        logger.info("answered in %.2f s", time.perf_counter() - started)
        return max(candidates, key=lambda c: c.votes).text, 0.0


if __name__ == "__main__":
    print(asyncio.run(Workflow("demo", {}, "math")("What is 6 times 7?")))
