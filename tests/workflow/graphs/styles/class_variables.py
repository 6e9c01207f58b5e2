class Workflow:
    name = "workflow"
    instructions: dict = {"math": "Compute.", "qa": "Answer from the context."}

    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    def _instruction(self) -> str:
        return self.instructions.get("math", "")

    async def __call__(self, problem: str):
        response = await self.custom(input=problem, instruction=self._instruction())
        return response["response"], 0.0
