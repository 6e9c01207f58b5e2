class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        context, _, question = problem.partition("Question:")
        evidence = await self.custom(
            input=problem, instruction=f"Quote the sentences that answer: {question.strip() or 'the question'}"
        )
        result = await self.answer(input=f"{evidence['response']}\nQuestion: {question.strip() or context}")
        return result["answer"].strip().rstrip("."), 0.0
