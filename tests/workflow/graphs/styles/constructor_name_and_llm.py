class Workflow:
    def __init__(self, name: str, llm):
        super().__init__()
        self.name = name
        self.llm = llm
        self.answer = operator.AnswerGenerate(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)

    async def __call__(self, problem: str):
        solution = (await self.answer(input=problem))["answer"]
        review = await self.review(problem=problem, solution=solution)
        if review["review_result"]:
            return solution, 0.0
        revised = await self.revise(problem=problem, solution=solution, feedback=review["feedback"])
        return revised["solution"], 0.0
