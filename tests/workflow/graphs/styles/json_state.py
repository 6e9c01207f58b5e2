import json
import math


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)
        self.history = []

    async def __call__(self, problem: str):
        result = await self.answer(input=problem)
        self.history.append(json.dumps({"answer": result["answer"]}))
        answer = json.loads(self.history[-1])["answer"]
        try:
            number = float(answer)
        except ValueError:
            return answer, 0.0
        return str(int(number)) if math.isclose(number, round(number)) else answer, 0.0
