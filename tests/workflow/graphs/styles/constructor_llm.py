class Workflow:
    def __init__(self, llm):
        self.llm = llm
        self.answer = operator.AnswerGenerate(llm)

    async def __call__(self, problem: str):
        result = await self.answer(input=problem)
        return result["answer"]
