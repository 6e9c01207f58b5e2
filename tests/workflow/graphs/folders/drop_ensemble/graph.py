import workspace.DROP.workflows.template.operator as operator
import workspace.DROP.workflows.round_2.prompt as prompt_custom
from scripts.async_llm import create_llm_instance
from scripts.evaluator import DatasetType


class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        first = await self.answer_generate(input=problem, mode="xml_fill")
        second = await self.answer_generate(input=problem + prompt_custom.AGAIN)
        best = await self.sc_ensemble(solutions=[first["answer"], second["answer"]])
        return best["response"], self.llm.get_usage_summary()["total_cost"]
