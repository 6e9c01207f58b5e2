class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.code_generate = operator.CustomCodeGenerate(self.llm)

    async def __call__(self, problem: str, **kwargs):
        entry_point = kwargs.get("entry_point", "solve")
        code = await self.code_generate(problem=problem, entry_point=entry_point, instruction="")
        return code["response"], 0.0
