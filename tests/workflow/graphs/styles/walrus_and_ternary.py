class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.programmer = operator.Programmer(self.llm)

    async def __call__(self, problem: str):
        if (program := await self.programmer(problem=problem))["parse_ok"]:
            return program["output"], 0.0
        answer = await self.answer(input=problem)
        return answer["answer"] if answer["answer"] else answer["thought"], 0.0
