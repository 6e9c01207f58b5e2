class Workflow:
    """Answers by three independent attempts.

    The vote is only asked for where the attempts differ.
    """

    def __init__(self, name: str, llm_config, dataset):
        """Build the operators."""
        self.llm = create_llm_instance(llm_config)  # shared by all operators
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        # Step 1: three attempts
        first, second, third = (
            await self.answer_generate(input=problem),
            await self.answer_generate(input=problem),
            await self.answer_generate(input=problem),
        )
        answers = {first["answer"], second["answer"], third["answer"]}
        # Step 2: agreement
        if len(answers) == 1:
            return answers.pop(), 0.0
        # Step 3: vote
        return (await self.sc_ensemble(solutions=sorted(answers), problem=problem))["response"], 0.0
