"""GRPO training from a configuration: ``await GRPOTrainer(config_path="config/training.yaml").train(num_steps=500)``.

Only trains; ``runs.train`` measures before and after as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.assembly.folder import open_folder
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.progress import Silent
from llm_as_judge.assembly.services import open_services
from llm_as_judge.assembly.tracking import tracking
from llm_as_judge.commands.train_run import assemble
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.events import StepReport


class GRPOTrainer:
    """Trains the configured policy; ``train`` may be awaited once."""

    def __init__(
        self,
        config_path: str | Path | None = None,
        overrides: Sequence[str] = (),
        *,
        config: Config | None = None,
        resume: bool = False,
    ) -> None:
        self.config = config or load_config(config_path, overrides)
        self.resume = resume

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Run ``num_steps`` steps (default: up to ``training.max_steps``); returns the last step's report."""
        config, quiet = self.config, Silent()
        opened = open_folder(config, resume=self.resume, progress=quiet)
        with tracking(config.tracking) as tracked, opened as folder:
            async with open_services(config) as services:
                author, problems = load_author(config), open_problems(config, measured=False)
                run = folder.begin(problems.digest, quiet)
                tracked.begin(run)
                trainer = assemble(run, services, author, problems, tracked.step)
                if folder.resumed_from is not None:
                    trainer.resume(folder.resumed_from)
                return await trainer.train(num_steps)
