class Workflow:
    def __init__(self, **kwargs):
        self.name = kwargs["name"]
        self.llm = create_llm_instance(kwargs["llm_config"])
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
        reply = await self.custom(input=problem, instruction="Answer with the final result only.")
        return reply["response"].strip(), 0.0
