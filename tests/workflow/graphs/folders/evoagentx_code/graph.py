import evoagentx.workflow.operators as operator
import examples.aflow.code_generation.prompt as prompt_custom  # noqa: F401
from evoagentx.benchmark.benchmark import Benchmark
from evoagentx.models.model_configs import LLMConfig
from evoagentx.models.model_utils import create_llm_instance


class Workflow:
    def __init__(self, name: str, llm_config: LLMConfig, benchmark: Benchmark | None = None):
        self.name = name
        self.llm = create_llm_instance(llm_config)
        self.benchmark = benchmark
        self.custom_code_generate = operator.CustomCodeGenerate(self.llm)
        self.ensemble = operator.QAScEnsemble(self.llm)
        self.test = operator.Test(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        one = await self.custom_code_generate(problem=problem, entry_point=entry_point)
        best = await self.ensemble(solutions=[one["response"], one["response"]])
        tested = await self.test(
            problem=problem, solution=best["response"], entry_point=entry_point, benchmark=self.benchmark
        )
        return tested["solution"]
