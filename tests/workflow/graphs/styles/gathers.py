import asyncio


class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.custom = operator.Custom(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.ensemble = operator.MdEnsemble(self.llm, vote_count=3)
        self.pick = operator.ScEnsemble(self.llm)

    async def counted(self, problem: str):
        seen = {}
        for finished in asyncio.as_completed([self.answer(input=problem) for _ in range(3)]):
            answer = (await finished)["answer"]
            seen[answer] = seen.get(answer, 0) + 1
        return max(seen, key=seen.get)

    async def limited(self, problem: str):
        limit = asyncio.Semaphore(2)

        async def one(seed: int):
            async with limit:
                return await asyncio.wait_for(self.answer(input=f"{problem} (attempt {seed})"), timeout=20)

        results = await asyncio.gather(*(one(i) for i in range(4)), return_exceptions=True)
        good = [r for r in results if not isinstance(r, Exception)]
        return good[0]["answer"] if good else ""

    async def __call__(self, problem: str):
        reasoning_task = asyncio.create_task(self.custom(input=problem, instruction="Solve step by step."))
        program_task = asyncio.create_task(self.programmer(problem=problem))
        reasoning, program = await asyncio.gather(reasoning_task, program_task)
        both = await self.ensemble(solutions=[reasoning["response"], program["output"]], problem=problem)

        async def attempt(style: str) -> str:
            reply = await self.custom(input=problem, instruction=style)
            return reply["response"]

        attempts = await asyncio.gather(*map(attempt, ["Solve it algebraically.", "Explain as to a child."]))
        drafts = await asyncio.gather(*[self.answer(input=problem) for _ in range(4)])
        answers = [draft["answer"] for draft in drafts if draft["parse_ok"]]
        if not answers:
            answers = [draft["answer"] for draft in drafts]
        found = [both["solution"], *attempts, *answers, await self.counted(problem), await self.limited(problem)]
        return (await self.pick(solutions=found, problem=problem))["response"], 0.0
