class Workflow:
    def __init__(self, *, llm_config, dataset: str = "") -> None:
        self.llm = create_llm_instance(llm_config)
        self.dataset = dataset
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str) -> tuple[str, float]:
        result = await self.answer(input=problem)
        return result["answer"], 0.0
