class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
        drafts = [await self.answer(input=problem) for _ in range(2)]
        lines = []
        for i, (draft, label) in enumerate(zip(drafts, ["first", "second"]), start=1):
            lines.append(f"{i}. ({label}) {draft['answer']} because {draft['thought']}")
        summary = "\n".join(lines)
        judged = await self.custom(input=f"{problem}\n{summary}", instruction="Give only the correct final answer.")
        return judged["response"], 0.0
