class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.programmer = operator.Programmer(self.llm)

    async def __call__(self, problem: str):
        kind = "number" if any(c.isdigit() for c in problem) else "text"
        match kind:
            case "number":
                return (await self.programmer(problem=problem))["output"], 0.0
            case _:
                return (await self.answer(input=problem))["answer"], 0.0
