import asyncio


class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.generate = operator.AnswerGenerate(self.llm)
        self.vote = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        drafts = await asyncio.gather(*[self.generate(input=problem) for _ in range(4)])
        answers = [draft["answer"] for draft in drafts if draft["parse_ok"]]
        if not answers:
            answers = [draft["answer"] for draft in drafts]
        chosen = await self.vote(solutions=answers, problem=problem)
        return chosen["response"], 0.0
