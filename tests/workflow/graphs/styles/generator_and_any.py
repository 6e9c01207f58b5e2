class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.review = operator.Review(self.llm)

    async def candidates(self, problem: str):
        for _ in range(3):
            result = await self.answer(input=problem)
            yield result["answer"]

    async def __call__(self, problem: str):
        last = ""
        async for candidate in self.candidates(problem):
            last = candidate
            review = await self.review(problem=problem, solution=candidate)
            if review["review_result"]:
                return candidate, 0.0
        return last, 0.0
