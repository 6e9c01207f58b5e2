"""Problems as rows of a data set: the prompt as messages, and the problem itself to score by.

    rows = training_rows(load_config("config/training.yaml"))

An engine shows its policy ``prompt`` and hands the other columns back to be scored. The prompt is Layer 1 without
examples from the experience buffer, which the package's own training alone has. The reference answer stands in
``record``, which no prompt shows.
"""

from __future__ import annotations

import json
from typing import Any

from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.data.benchmarks.custom import to_record
from llm_as_judge.data.problems import spread
from llm_as_judge.integrations.score import RECORD
from llm_as_judge.policy.chat import messages_for
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.types import Problem
from llm_as_judge.workflow.prompt import Layer1


def training_rows(config: Config, count: int | None = None) -> list[dict[str, Any]]:
    """``count`` problems in the configured ratios and the order in which a run of the package's own draws them; by
    default as many as such a run takes.

    Raises ``ConfigError`` and ``DataError`` where data or policy cannot be read.
    """
    sampler = open_problems(config, measured=False).sampler
    return _rows(config, sampler.sample(count or config.training.max_steps * config.training.rollout_batch_size))


def heldout_rows(config: Config, count: int | None = None) -> list[dict[str, Any]]:
    """The held-out problems, or ``count`` of them, of which each dataset and domain keeps its share."""
    problems = heldout_problems(config.data)
    return _rows(config, problems if count is None else spread(problems, count))


def _rows(config: Config, problems: list[Problem]) -> list[dict[str, Any]]:
    """A system message is left out where the policy's chat template has no place for it; the user's tells it then."""
    tokenizer = load_tokenizer(locate_weights(config.base_model.path))
    prompt = Layer1(config.workflow.model_copy(update={"prefill": False}))
    return [
        {
            "prompt": messages_for(tokenizer, prompt(problem.question)),
            "id": problem.question.id,
            "domain": problem.question.domain,
            "dataset": problem.question.dataset,
            RECORD: json.dumps(to_record(problem), ensure_ascii=False),
        }
        for problem in problems
    ]
