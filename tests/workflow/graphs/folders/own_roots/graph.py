import schemes.AFlow.workspace.MATH.workflows.template.operator as operator
import runs.seed7.aflow.round_3.prompt as prompt_custom
from schemes.AFlow.scripts.async_llm import create_llm_instance


class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.programmer = operator.Programmer(self.llm, name="Programmer")
        self.md = operator.MdEnsemble(self.llm)

    async def __call__(self, problem: str):
        a = await self.programmer(problem)
        b = await self.programmer(problem=problem, analysis=getattr(prompt_custom, "ANALYSIS", "None"))
        best = await self.md(solutions=[a["output"], b["output"]], problem=problem, mode="xml_fill")
        return best["final_solution"], 0.0
