class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)

    async def __call__(self, problem: str):
        solution = (await self.answer(input=problem))["answer"]
        attempts = 0
        while attempts < 2:
            review = await self.review(problem=problem, solution=solution)
            if review["review_result"]:
                break
            revised = await self.revise(problem=problem, solution=solution, feedback=review["feedback"])
            solution = revised["solution"]
            attempts += 1
        return solution, 0.0
