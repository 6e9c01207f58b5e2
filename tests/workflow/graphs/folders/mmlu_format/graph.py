import metagpt.ext.aflow.scripts.optimized.MMLU.workflows.template.operator as operator
from metagpt.provider.llm_provider_registry import create_llm_instance


class Workflow:
    def __init__(self, name: str, llm_config, dataset) -> None:
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)
        self.format = operator.Format(self.llm)

    async def __call__(self, problem: str):
        drafts = [(await self.custom(input=problem, instruction=""))["response"] for _ in range(2)]
        best = await self.sc_ensemble(drafts)
        answer = await self.format(best["response"])
        return answer["solution"], self.llm.cost_manager.get_total_cost()
