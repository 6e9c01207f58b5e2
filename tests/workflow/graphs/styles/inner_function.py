import asyncio


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.pick = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        styles = ["Solve it algebraically.", "Solve it by trying numbers.", "Explain as to a child, then answer."]

        async def attempt(style: str) -> str:
            reply = await self.custom(input=problem, instruction=style)
            return reply["response"]

        attempts = await asyncio.gather(*map(attempt, styles))
        chosen = await self.pick(solutions=list(attempts), problem=problem)
        return chosen["response"], 0.0
