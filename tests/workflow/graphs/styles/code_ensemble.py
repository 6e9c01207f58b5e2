class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.generate = operator.CustomCodeGenerate(self.llm)
        self.ensemble = operator.ScEnsemble(self.llm)
        self.test = operator.Test(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        solutions = [
            (await self.generate(problem=problem, entry_point=entry_point, instruction=hint))["response"]
            for hint in ("Write clean code.", "Think about edge cases first.", "Prefer built-in functions.")
        ]
        best = (await self.ensemble(solutions=solutions, problem=problem))["response"]
        result = await self.test(problem=problem, solution=best, entry_point=entry_point)
        return (result["solution"] if result["result"] else best), 0.0
