import asyncio


class Workflow:
    MAX_ROUNDS = 2

    def __init__(self, llm):
        self.llm = llm
        self.generate = operator.CustomCodeGenerate(llm)
        self.test = operator.Test(llm)
        self.review = operator.Review(llm)
        self.revise = operator.Revise(llm)

    async def __call__(self, problem: str, entry_point: str) -> str:
        drafts = await asyncio.gather(
            *[self.generate(problem=problem, entry_point=entry_point, instruction=f"Variant {i}") for i in range(3)]
        )
        code = drafts[0]["response"]
        for round_number in range(self.MAX_ROUNDS):
            review = await self.review(problem=problem, solution=code)
            if review["review_result"]:
                continue
            code = (await self.revise(problem=problem, solution=code, feedback=review["feedback"]))["solution"]
        for draft in drafts:
            outcome = await self.test(
                problem=problem, solution=draft["response"], entry_point=entry_point, test_loop=1
            )
            if outcome["result"]:
                return outcome["solution"]
            code = outcome["solution"]
        return code
