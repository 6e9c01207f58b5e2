from typing import Literal
from ..template import operator
from .prompt import CODE_PROMPT
from scripts.async_llm import AsyncLLM
from scripts.logs import logger

from scripts.evaluator import DatasetType


class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.llm = AsyncLLM(llm_config)
        self.code = operator.CustomCodeGenerate(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        logger.info("a draft of {}", entry_point)
        draft = await self.code(problem=problem, entry_point=entry_point, instruction=CODE_PROMPT.format(name=entry_point))
        return draft["response"], self.llm.get_usage_summary()["total_cost"]
