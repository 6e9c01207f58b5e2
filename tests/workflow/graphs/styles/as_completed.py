import asyncio


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        seen = {}
        for finished in asyncio.as_completed([self.answer(input=problem) for _ in range(3)]):
            answer = (await finished)["answer"]
            seen[answer] = seen.get(answer, 0) + 1
            if seen[answer] == 2:
                return answer, 0.0
        return max(seen, key=seen.get), 0.0
