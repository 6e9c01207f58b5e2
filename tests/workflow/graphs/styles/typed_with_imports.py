from typing import Any, Dict, List, Tuple


class Workflow:
    """Solves a problem with self-consistency."""

    def __init__(self, name: str, llm_config: Dict[str, Any], dataset: str) -> None:
        self.name = name
        self.dataset = dataset
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str) -> Tuple[str, float]:
        solutions: List[str] = []
        for _ in range(3):
            result: Dict[str, Any] = await self.answer_generate(input=problem)
            solutions.append(result["answer"])
        final = await self.sc_ensemble(solutions=solutions, problem=problem)
        return final["response"], 0.0
