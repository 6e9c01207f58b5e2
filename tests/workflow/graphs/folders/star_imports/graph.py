from typing import Literal
from scripts.operators import *
from . import prompt
from scripts.async_llm import *

DatasetType = Literal["HumanEval", "MBPP"]


class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.llm_config = llm_config

    async def __call__(self, problem: str):
        llm = create_llm_instance(self.llm_config)
        review, custom = Review(llm), Custom(llm)
        llm.usage_tracker.usage_history = []
        draft = await custom(input=problem, instruction=prompt.DRAFT)
        seen = await review(problem=problem, solution=draft["response"], mode="xml_fill")
        if not seen["review_result"]:
            revised = await Revise(llm)(problem=problem, solution=draft["response"], feedback=seen["feedback"])
            return revised["revised_solution"], llm.usage_tracker.get_summary()["total_cost"]
        return draft["response"], llm.usage_tracker.get_summary()["total_cost"]
