import logging
import time

logger = logging.getLogger(__name__)


class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        started = time.perf_counter()
        result = await self.answer(input=problem)
        logger.info("answered in %.2f s", time.perf_counter() - started)
        return result["answer"], 0.0
