class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        first = await self.answer(input=problem)
        second = await self.programmer(problem=problem, analysis=first["thought"])
        if first["answer"] == second["output"]:
            return first["answer"], 0.0
        third = await self.answer(input=problem)
        if third["answer"] in (first["answer"], second["output"]):
            return third["answer"], 0.0
        options = [first["answer"], second["output"], third["answer"]]
        best = await self.ensemble(solutions=options, problem=problem)
        return best["response"], 0.0
