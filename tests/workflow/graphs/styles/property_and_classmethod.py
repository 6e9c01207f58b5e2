class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self._answer = operator.AnswerGenerate(self.llm)

    @property
    def attempts(self) -> int:
        return 2

    @classmethod
    def clean(cls, text: str) -> str:
        return text.strip().strip(".")

    async def __call__(self, problem: str):
        texts = [self.clean((await self._answer(input=problem))["answer"]) for _ in range(self.attempts)]
        return min(texts, key=len), 0.0
