import asyncio


class Workflow:
    def __init__(self, llm):
        self.llm = llm
        self.generate = operator.CustomCodeGenerate(llm)
        self.test = operator.Test(llm)

    async def __call__(self, problem: str, entry_point: str) -> str:
        drafts = await asyncio.gather(
            *[self.generate(problem=problem, entry_point=entry_point, instruction=f"Variant {i}") for i in range(3)]
        )
        fallback = drafts[0]["response"]
        for draft in drafts:
            outcome = await self.test(
                problem=problem, solution=draft["response"], entry_point=entry_point, test_loop=1
            )
            if outcome["result"]:
                return outcome["solution"]
            fallback = outcome["solution"]
        return fallback
