import json
import math


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        llm = create_llm_instance(llm_config)
        self.answer, self.format = operator.AnswerGenerate(llm), operator.Format(llm)
        self.programmer = operator.Programmer(llm)
        self.review, self.revise = operator.Review(llm), operator.Revise(llm)
        self.custom = operator.Custom(llm_config)
        self.history = []

    async def __call__(self, problem: str):
        kind = "number" if any(c.isdigit() for c in problem) else "text"
        match kind:
            case "number":
                first = (await self.programmer(problem=problem))["output"]
            case _:
                first = (await self.answer(problem))["answer"]
        try:
            result = await self.programmer(problem=problem)
            output = result["output"]
            if not result["parse_ok"] or output:
                raise ValueError(result["error"])
        except Exception as e:
            print(f"program failed: {e}")
            result = await self.answer(input=problem)
            output = result["answer"] if result["answer"] else result["thought"]
        attempts = 0
        while attempts < 2:
            review = await self.review(problem=problem, solution=output)
            if review["review_result"] and attempts:
                break
            output = (await self.revise(problem=problem, solution=output, feedback=review["feedback"]))["solution"]
            attempts += 1
        drafts = [await self.answer(input=problem) for _ in range(2)]
        lines = [first]
        for i, (draft, label) in enumerate(zip(drafts, ["first", "second"]), start=1):
            lines.append(f"{i}. ({label}) {draft['answer']} because {draft['thought']}")
        if not (judged := await self.custom(input="\n".join(lines), instruction="Give the final answer."))["parse_ok"]:
            return judged["response"], 0.0
        final = await self.format(problem=problem, solution=f"{judged['response']}\nAnswer: {output}")
        self.history.append(json.dumps({"answer": output, "final": final["response"]}))
        answer = json.loads(self.history[-1])["answer"]
        try:
            number = float(answer)
        except ValueError:
            return answer, 0.0
        return str(int(number)) if math.isclose(number, round(number)) else answer, 0.0
