"""GRPO training for programs: ``await GRPOTrainer(config_path="config/training.yaml").train(num_steps=500)``.

It only trains; ``llm-as-judge train`` also measures before and after.
"""

from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.assembly.training import open_training
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.events import StepReport


class GRPOTrainer:
    """Trains the configured policy, by default that of ``config/embedded.yaml``; ``train`` may be awaited once."""

    def __init__(
        self, config_path: str | Path | None = None, overrides: Sequence[str] = (), *, config: Config | None = None,
        resume: bool = False,
    ) -> None:  # fmt: skip
        self.config = config or load_config(config_path or "config/embedded.yaml", overrides)
        self.resume = resume

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Run ``num_steps`` steps (default: up to ``training.max_steps``); returns the last step's report."""
        async with open_training(self.config, resume=self.resume) as training:
            return await training.train(num_steps)
