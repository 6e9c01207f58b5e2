import re

INSTRUCTION = "Think step by step. End with 'Answer: <result>'."
PATTERN = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)


def last_answer(text: str) -> str:
    found = PATTERN.findall(text)
    return found[-1].strip() if found else text.strip()


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
        result = await self.custom(input=problem, instruction=INSTRUCTION)
        return last_answer(result["response"]), 0.0
