class Workflow:
    def __init__(self, llm_config, dataset):
        self.model = create_llm_instance(llm_config)
        self.dataset = dataset
        self.answerer = operator.AnswerGenerate(self.model)

    async def __call__(self, question: str):
        out = await self.answerer(input=question)
        return out["answer"], 0.0
