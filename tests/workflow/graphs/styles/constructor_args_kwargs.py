class Workflow:
    def __init__(self, *args, **kwargs):
        self.llm = kwargs.get("llm") or create_llm_instance(kwargs.get("llm_config", {}))
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str, *args, **kwargs):
        result = await self.answer(input=problem)
        return result["answer"], 0.0
