import asyncio


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.ensemble = operator.MdEnsemble(self.llm, vote_count=3)

    async def __call__(self, problem: str):
        reasoning_task = asyncio.create_task(self.custom(input=problem, instruction="Solve step by step."))
        program_task = asyncio.create_task(self.programmer(problem=problem))
        reasoning, program = await asyncio.gather(reasoning_task, program_task)
        candidates = [reasoning["response"], program["output"]]
        result = await self.ensemble(solutions=candidates, problem=problem)
        return result["solution"], 0.0
