class Workflow:
    """Asks the strong executor where a problem has several steps, which here are several sentences."""

    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.quick = operator.AnswerGenerate(self.llm)
        self.careful = operator.AnswerGenerate(self.llm, model="strong")

    async def __call__(self, problem: str):
        several = problem.count(". ") > 1
        result = await (self.careful(input=problem) if several else self.quick(input=problem))
        return result["answer"], 0.0
