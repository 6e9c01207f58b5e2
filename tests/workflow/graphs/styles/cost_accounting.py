class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        cost = 0.0
        result = await self.answer(input=problem)
        usage = self.llm.get_usage_summary()
        cost += usage.get("total_cost", 0.0)
        return (result.get("answer", "").strip() or "unknown", cost)
