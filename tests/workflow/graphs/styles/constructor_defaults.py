class Workflow:
    def __init__(self, name="workflow", llm_config=None, dataset=None, *, votes=3):
        self.votes = votes
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem):
        pool = []
        for _ in range(self.votes):
            pool.append((await self.answer(input=problem))["answer"])
        return (await self.ensemble(solutions=pool, problem=problem))["response"], 0.0
