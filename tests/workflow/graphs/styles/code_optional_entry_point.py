from typing import Optional, Tuple


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.code_generate = operator.CustomCodeGenerate(self.llm)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str, entry_point: Optional[str] = None) -> Tuple[str, float]:
        if entry_point is None:
            return (await self.answer(input=problem))["answer"], 0.0
        code = await self.code_generate(problem=problem, entry_point=entry_point, instruction="")
        return code["response"], 0.0
