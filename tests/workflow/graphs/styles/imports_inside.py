class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        import operator as standard
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.key = standard.itemgetter("answer")

    async def __call__(self, problem: str):
        import asyncio
        from collections import Counter
        results = await asyncio.gather(self.answer(input=problem), self.answer(input=problem))
        return Counter(map(self.key, results)).most_common(1)[0][0], 0.0
