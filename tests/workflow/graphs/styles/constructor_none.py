class Workflow:
    def __init__(self):
        self.llm = create_llm_instance()
        self.programmer = operator.Programmer(self.llm)

    async def __call__(self, problem: str) -> str:
        result = await self.programmer(problem=problem, analysis="Compute the requested quantity exactly.")
        return str(result["output"])
