import asyncio
from collections import Counter
from typing import List, Optional


class Workflow:
    MAX_TRIES = 3

    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.ensemble = operator.ScEnsemble(self.llm)

    async def _draft(self, problem: str) -> str:
        result = await self.answer(input=problem)
        return result["answer"].strip()

    @staticmethod
    def _majority(answers: List[str]) -> Optional[str]:
        value, count = Counter(answers).most_common(1)[0]
        return value if count > len(answers) / 2 else None

    async def __call__(self, problem: str):
        answers = list(await asyncio.gather(*(self._draft(problem) for _ in range(self.MAX_TRIES))))
        winner = self._majority(answers)
        if winner is not None:
            return winner, 0.0
        return (await self.ensemble(solutions=answers, problem=problem))["response"], 0.0
