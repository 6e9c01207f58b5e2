import asyncio


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        result = await self.answer(input=problem)
        return result["answer"], 0.0


if __name__ == "__main__":
    workflow = Workflow("demo", {}, "math")
    print(asyncio.run(workflow("What is 6 times 7?")))
