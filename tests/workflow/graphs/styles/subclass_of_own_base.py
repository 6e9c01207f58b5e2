class Base:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def solve(self, problem):
        return (await self.answer(input=problem))["answer"]


class Workflow(Base):
    async def __call__(self, problem: str):
        return await self.solve(problem), 0.0
