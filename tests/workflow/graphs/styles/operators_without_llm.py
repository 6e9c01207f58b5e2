class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.answer = operator.AnswerGenerate(llm_config)

    async def __call__(self, problem: str):
        result = await self.answer(problem)
        return result["answer"], 0.0
