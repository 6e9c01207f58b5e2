from collections import Counter
from typing import Any, Dict, List, Optional, Tuple


class Workflow:
    """Answers by independent attempts.

    The vote is only asked for where they differ.
    """

    MAX_ROUNDS = 2
    instructions: dict = {"math": "Compute.", "qa": "Answer from the context."}

    def __init__(self, name: str, llm_config: Dict[str, Any], dataset: str) -> None:
        """Build the operators."""
        import operator as standard
        self.name = name
        self.llm = create_llm_instance(llm_config)  # shared by all operators
        self.answer = operator.AnswerGenerate(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)
        self.ops = {
            "custom": operator.Custom(self.llm),
            "review": operator.Review(self.llm),
        }
        self.key = standard.itemgetter("answer")

    @property
    def attempts(self) -> int:
        return 2

    @classmethod
    def clean(cls, text: str) -> str:
        return text.strip().strip(".")

    @staticmethod
    def _majority(answers: List[str]) -> Optional[str]:
        value, count = Counter(answers).most_common(1)[0]
        return value if count > len(answers) else None

    def _instruction(self) -> str:
        return self.instructions.get("math", "")

    async def _draft(self, problem: str) -> str:
        result = await self.answer(input=problem)
        return self.clean(result["answer"])

    async def candidates(self, problem: str):
        for _ in range(self.attempts):
            yield await self._draft(problem)

    async def __call__(self, problem: str) -> Tuple[str, float]:
        import asyncio
        # Step 1: attempts
        first, second = (
            await self.answer(input=problem),
            await self.answer(input=problem),
        )
        solutions: List[str] = sorted({first["answer"], second["answer"]})
        solutions += map(self.key, await asyncio.gather(self.answer(input=problem), self.answer(input=problem)))
        async for candidate in self.candidates(problem):
            review = await self.ops["review"](problem=problem, solution=candidate)
            if review["review_result"]:
                solutions.append(candidate)
        for _ in range(self.MAX_ROUNDS):
            hint: Dict[str, Any] = await self.ops["custom"](input=problem, instruction=self._instruction())
            solutions.append(hint["response"])
        # Step 2: agreement, or a vote
        winner = self._majority(solutions)
        if winner is not None:
            return winner, 0.0
        return (await self.sc_ensemble(solutions=solutions, problem=problem))["response"], 0.0
