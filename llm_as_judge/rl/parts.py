"""What the training loop works with, handed in as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from llm_as_judge.events import StepReport
from llm_as_judge.llm.places import Load
from llm_as_judge.policy.device import Device
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.ranks import ALONE, Ranks
from llm_as_judge.rl.report import Log
from llm_as_judge.rl.rollout import Engine, RolloutParts
from llm_as_judge.types import Group, Problem, Prompt, Question


class Sampler(Protocol):
    """Draws problems; its state is part of a checkpoint."""

    def sample(self, n: int) -> Sequence[Problem]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Audit(Protocol):
    """``judging.audit.AuditedJudge``: figures of a step's groups by domain, and what is alarming about them."""

    def step(self, groups: Sequence[Group]) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[object]]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Buffer(Protocol):
    """The experience buffer; ``update`` sees every group once, after its step, and ``save`` writes it down."""

    def update(self, groups: Sequence[Group], step: int) -> None: ...
    def save(self) -> None: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainerParts:
    """``evaluate`` is awaited every ``eval_every`` steps, its result logged; it works on ``device`` as the loop does.
    ``load`` tells what the executor's places have been used for, ``spent`` which limit of the budget is reached.
    This is rank 0 of ``ranks``.
    """

    policy: Policy
    engine: Engine
    sampler: Sampler
    build_prompt: Callable[[Question], Prompt]
    rollout: RolloutParts
    log: Log
    checkpoint_dir: Path
    buffer: Buffer | None = None
    audit: Audit | None = None
    on_step: Callable[[StepReport], None] | None = None
    evaluate: Callable[[int], Awaitable[Mapping[str, float]]] | None = None
    config_text: str = ""  # stored with every checkpoint, as is
    run_id: str = ""
    load: Callable[[], Load] | None = None
    device: Device = field(default_factory=Device)
    spent: Callable[[], str] = str  # empty where there is no limit or none is reached
    ranks: Ranks = ALONE
