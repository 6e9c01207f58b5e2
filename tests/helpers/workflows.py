"""Workflows that several tests write to a file."""

SINGLE_CALL = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem):
        result = await self.custom(input=problem, instruction="")
        return result['response'], 0.0
"""
