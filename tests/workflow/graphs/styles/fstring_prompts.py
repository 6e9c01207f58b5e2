class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.planner = operator.Custom(self.llm)
        self.solver = operator.Custom(self.llm)
        self.formatter = operator.Format(self.llm)

    async def __call__(self, problem: str):
        plan = await self.planner(input=problem, instruction="List the steps needed. Do not solve.")
        solved = await self.solver(
            input=f"Problem: {problem}\n\nPlan:\n{plan['response']}",
            instruction=(
                "Follow the plan and solve the problem. "
                "Show the work and end with the final answer."
            ),
        )
        final = await self.formatter(problem=problem, solution=solved["response"])
        return f"{final['response']}", 0.0
