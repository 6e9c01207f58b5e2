class Workflow:
    MAX_ROUNDS = 2

    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.generate = operator.CustomCodeGenerate(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)
        self.test = operator.Test(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        code = (await self.generate(problem=problem, entry_point=entry_point, instruction=""))["response"]
        for round_number in range(self.MAX_ROUNDS):
            tested = await self.test(problem=problem, solution=code, entry_point=entry_point)
            code = tested["solution"]
            if tested["result"]:
                break
            review = await self.review(problem=problem, solution=code)
            if review["review_result"]:
                continue
            code = (await self.revise(problem=problem, solution=code, feedback=review["feedback"]))["solution"]
        return code, 0.0
