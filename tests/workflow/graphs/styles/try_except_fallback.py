class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.programmer = operator.Programmer(self.llm)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        try:
            result = await self.programmer(problem=problem)
            output = result["output"]
            if not result["parse_ok"] or not output:
                raise ValueError(result["error"])
        except Exception as e:
            print(f"program failed: {e}")
            result = await self.answer(input=problem)
            output = result["answer"]
        return output, 0.0
