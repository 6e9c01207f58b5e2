class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.ops = {
            "answer": operator.AnswerGenerate(self.llm),
            "custom": operator.Custom(self.llm),
        }

    async def __call__(self, problem: str):
        hint = await self.ops["custom"](input=problem, instruction="Name the key facts.")
        result = await self.ops["answer"](input=f"{problem}\nFacts: {hint['response']}")
        return result["answer"], 0.0
