class Workflow:
    def __init__(self, llm_config):
        llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(llm)
        self.format = operator.Format(llm)

    async def __call__(self, problem):
        draft = await self.custom(input=problem, instruction="Reason carefully, then state the result.")
        final = await self.format(problem=problem, solution=draft["response"])
        return final["response"], 0
