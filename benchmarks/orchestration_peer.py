"""TRL's asynchronous rollout loop with our rollouts as its reward function; ``orchestration.py`` starts it.

The loop is TRL's own (``trl.experimental.async_grpo``, generation and scoring as its worker process runs them), its
policy server answers at once. Prints the seconds that a group of six takes on average.

    python benchmarks/orchestration_peer.py ADDRESS PLACES GROUPS
"""

import asyncio
import json
import multiprocessing
import queue
import sys
import tempfile
import time
import warnings
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from datasets import Dataset
from orchestration import BATCH, GROUP, settings
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.rl.rollout import conclude, run_attempt
from llm_as_judge.types import Completion, Problem, Rollout


def main(address: str, places: int, groups: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    PartialState()
    config = settings(address, places, folder)
    author, sampler = load_author(config), open_problems(config).sampler
    tokenizer, problems = author.policy.tokenizer, sampler.sample(32)
    if getattr(tokenizer, "response_template", None) is None:
        tokenizer.response_template = {}  # it has no tools to call: replies are plain text
    ends: list[float] = []
    stack = AsyncExitStack()
    opened: list[Any] = []

    async def reward(
        completions: list[Any], completion_ids: list[list[int]], index: list[int], **_: Any
    ) -> list[float]:
        if not opened:
            opened.append(await stack.enter_async_context(open_services(config)))
            ends.append(time.monotonic())
        texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in completion_ids]

        async def rolled(problem: Problem, completion: Completion) -> Rollout:
            last = await run_attempt(problem, completion, opened[0].training, len(ends))
            return await conclude(problem, completion, opened[0].training, last)

        rollouts = await asyncio.gather(
            *(
                rolled(problems[i], Completion(text, (), tuple(ids), (), "stop"))
                for i, text, ids in zip(index, texts, completion_ids, strict=True)
            )
        )
        ends.append(time.monotonic())
        if len(ends) > groups:
            loop._stop_event.set()
        return [float(r.reward.total or 0.0) for r in rollouts]

    rows = [{"prompt": [{"role": "user", "content": p.question.statement}], "index": i} for i, p in enumerate(problems)]
    shared = multiprocessing.get_context("spawn")
    loop = _AsyncRolloutLoop(
        model_name="sleeper",
        dataset=Dataset.from_list(rows),
        reward_funcs=[reward],
        processing_class=tokenizer,
        eos_token_ids=sorted(author.policy.eos_token_ids),
        rollout_buffer=queue.Queue(),
        model_version_value=shared.Value("i", 0),
        heartbeat_value=shared.Value("d", 0.0),
        failed_event=shared.Event(),
        exception_info_queue=queue.Queue(1),
        metrics_queue=queue.Queue(1),
        num_generations=GROUP,
        max_inflight_tasks=max(128, 4 * BATCH * GROUP),
        vllm_server_url=address,
        max_tokens=config.training.response_max_length,
    )
    loop.run()
    print(json.dumps({"seconds_a_group": (ends[-1] - ends[0]) / (len(ends) - 1)}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(name))
