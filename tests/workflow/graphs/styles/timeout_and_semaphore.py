import asyncio


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        limit = asyncio.Semaphore(2)

        async def one(seed: int):
            async with limit:
                return await asyncio.wait_for(self.answer(input=f"{problem} (attempt {seed})"), timeout=20)

        results = await asyncio.gather(*(one(i) for i in range(4)), return_exceptions=True)
        good = [r for r in results if not isinstance(r, Exception)]
        return good[0]["answer"] if good else "", 0.0
