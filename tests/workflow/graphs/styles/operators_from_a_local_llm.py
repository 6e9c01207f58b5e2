class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        llm = create_llm_instance(llm_config)
        self.answer, self.format = operator.AnswerGenerate(llm), operator.Format(llm)

    async def __call__(self, problem: str):
        thought = await self.answer(input=problem)
        final = await self.format(problem=problem, solution=f"{thought['thought']}\nAnswer: {thought['answer']}")
        return final["response"], 0.0
