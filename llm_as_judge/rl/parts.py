"""Components of the training loop, built by the caller."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.events import StepReport
from llm_as_judge.llm.places import Load
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.rl.ranks import ALONE, Ranks
from llm_as_judge.rl.report import Log
from llm_as_judge.rl.rollout import Engine, RolloutParts
from llm_as_judge.types import Prompt, Question


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """Everything that ``Trainer`` uses except the settings. This process is rank 0 of ``ranks``."""

    policy: Policy
    engine: Engine
    sampler: DomainSampler
    build_prompt: Callable[[Question], Prompt]
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    buffer: ExperienceBuffer | None = None
    on_step: Callable[[StepReport], None] | None = None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None  # validation, logged as it is
    config_text: str = ""  # saved with every checkpoint
    run_id: str = ""
    load: Callable[[], Load] | None = None  # usage of the executor's connections so far
    spent: Callable[[], str] = str  # which budget is used up; empty if none
    ranks: Ranks = ALONE
