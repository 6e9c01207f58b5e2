from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Candidate:
    text: str
    votes: int = 0
    notes: list[str] = field(default_factory=list)


class Workflow:
    def __init__(self, name: str, llm_config: dict, dataset: str | None = None):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.review = operator.Review(self.llm)

    async def __call__(self, problem: str) -> tuple[str, float]:
        candidates: list[Candidate] = []
        for _ in range(2):
            candidate = Candidate((await self.answer(input=problem))["answer"])
            verdict = await self.review(problem=problem, solution=candidate.text)
            candidate.votes += int(verdict["review_result"])
            candidate.notes.append(verdict["feedback"])
            candidates.append(candidate)
        best = max(candidates, key=lambda c: c.votes)
        return best.text, 0.0
