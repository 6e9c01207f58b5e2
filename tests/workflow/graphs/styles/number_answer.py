class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.programmer = operator.Programmer(self.llm)

    async def __call__(self, problem: str):
        result = await self.programmer(problem=problem)
        text = result["output"]
        return int(text) if text.lstrip("-").isdigit() else text
