from typing import Literal
import workspace.MATH.workflows.template.operator as operator
from workspace.MATH.workflows.template.operator import ScEnsemble
from scripts.async_llm import create_llm_instance
from scripts.evaluator import DatasetType


class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.ensemble = ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        solutions = []
        for _ in range(3):
            solution = await self.custom(input=problem, instruction="Solve step by step.")
            solutions.append(solution["response"])
        final = await self.ensemble(solutions=solutions, problem=problem)
        return final["response"], self.llm.get_usage_summary()["total_cost"]
