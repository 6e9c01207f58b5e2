class Workflow:
    async def __call__(self, problem: str):
        llm = create_llm_instance({})
        answer_generate = operator.AnswerGenerate(llm)
        result = await answer_generate(input=problem)
        return result["answer"], 0.0
