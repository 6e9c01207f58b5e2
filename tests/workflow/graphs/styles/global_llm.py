llm = create_llm_instance({})
answer_generate = operator.AnswerGenerate(llm)


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.answer_generate = answer_generate

    async def __call__(self, problem: str):
        result = await self.answer_generate(input=problem)
        return result["answer"], 0.0
