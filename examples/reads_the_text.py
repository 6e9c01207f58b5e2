"""One hand-written workflow for the embedded problems: it reads the text and takes the branch that this kind needs.

    llm-as-judge evaluate --config config/embedded.yaml --workflow examples/reads_the_text.py

Each domain needs one phrase. A trained policy found as good a rule without being given any.
"""


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.program = operator.Programmer(self.llm)
        self.generate = operator.CustomCodeGenerate(self.llm)
        self.test = operator.Test(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)

    async def __call__(self, problem: str, entry_point: str = ""):
        asked = problem.rsplit("Never mind.", 1)[-1]
        if asked.strip().startswith("Write a Python function"):
            draft = await self.generate(problem=problem, entry_point=entry_point, instruction="")
            solution = draft["response"]
            if asked.count(". ") == 0:  # no requirement after the first sentence
                tested = await self.test(problem=problem, solution=solution, entry_point=entry_point)
                return tested["solution"], 0.0
            check = await self.review(problem=problem, solution=solution)
            if not check["review_result"]:
                revised = await self.revise(problem=problem, solution=solution, feedback=check["feedback"])
                solution = revised["solution"]
            return solution, 0.0
        question = asked.rsplit("Question:", 1)[-1]
        reading = "Context:" in problem
        if (reading and "dollars" not in question) or (not reading and "has the money" in question):
            return (await self.answer(input=problem))["answer"], 0.0
        return (await self.program(problem=problem))["output"], 0.0
