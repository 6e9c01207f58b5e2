class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.code_generate = operator.CustomCodeGenerate(self.llm)
        self.test = operator.Test(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        draft = await self.code_generate(problem=problem, entry_point=entry_point, instruction="Handle edge cases.")
        tested = await self.test(problem=problem, solution=draft["response"], entry_point=entry_point)
        return tested["solution"], 0.0
