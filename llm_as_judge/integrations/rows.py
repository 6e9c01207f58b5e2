"""Problems as rows of a data set: ``prompt`` as messages, and ``record``, the problem used for scoring.

    rows = training_rows(load_config("config/training.yaml"))

An engine shows its policy ``prompt`` and passes the other columns back for scoring. The prompt is Layer 1 without
examples, which only the package's own training has. It never contains the reference answer.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llm_as_judge.assembly.check import check_before
from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.data.forms import to_record
from llm_as_judge.data.problems import spread
from llm_as_judge.files import picked
from llm_as_judge.integrations.score import RECORD
from llm_as_judge.judging.judge import RULES_ONLY, Judge
from llm_as_judge.judging.own import OwnJudge
from llm_as_judge.policy.chat import messages_for
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Problem
from llm_as_judge.workflow.prompt import Layer1


def training_rows(config: Config, count: int | None = None) -> list[dict[str, Any]]:
    """Return ``count`` training problems (default: as many as a whole run) in the order of the package's own training.

    Raises ``ConfigError`` and ``DataError`` for data or a policy that cannot be read and for hidden tests that pass
    a function that returns None.
    """
    sampler = open_problems(config, measured=False).sampler
    return _rows(config, sampler.sample(count or config.training.max_steps * config.training.rollout_batch_size))


def heldout_rows(config: Config, count: int | None = None) -> list[dict[str, Any]]:
    """Return all held-out problems, or ``count`` of them with the share of each dataset and domain; raises likewise."""
    problems = heldout_problems(config.data)
    return _rows(config, problems if count is None else spread(problems, count))


def _rows(config: Config, problems: list[Problem]) -> list[dict[str, Any]]:
    """Make rows of ``problems``. Without a system message in the chat template, its text is in the user's message."""

    async def check() -> None:
        async with Sandbox(config.sandbox) as sandbox:
            judge = OwnJudge(config.judge) if config.judge.own else Judge(RULES_ONLY)
            await check_before(problems, sandbox, judge)

    if config.judge.own or any(problem.place for problem in problems):
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
            thread.submit(asyncio.run, check()).result()
    tokenizer = load_tokenizer(locate_weights(config.base_model.path))
    prompt = Layer1(config.workflow.model_copy(update={"prefill": False}), config.data.domains, config.choices)
    return [
        {
            "prompt": messages_for(tokenizer, prompt(problem.question)),
            **picked(problem.question, "id domain dataset"),
            RECORD: json.dumps(to_record(problem), ensure_ascii=False),
        }
        for problem in problems
    ]
