"""A finished training run with the nano models, and settings of small runs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its ``checkpoints``, ``logs``, ``results`` and ``buffer`` are folders in ``folder``."""

    folder: Path
    address: str
    printed: str  # standard output of ``train``

    config = ROOT / "config/embedded.yaml"

    @property
    def log(self) -> Path:
        return self.folder / "logs/nano/grpo_mixed.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints/nano/grpo_mixed/step_2"

    @property
    def overrides(self) -> list[str]:
        """The run's settings as ``name=value``."""
        return run_settings(self.folder, self.address)

    @property
    def options(self) -> list[str]:
        """The run's settings as options of the command line."""
        return as_options(self.config, self.overrides)

    def copy(self, folder: Path) -> "FinishedRun":
        """The same run in another folder, to change."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return FinishedRun(folder, self.address, self.printed)


def as_options(config: Path, overrides: list[str]) -> list[str]:
    return ["--config", str(config), *(word for override in overrides for word in ("--set", override))]


def run_settings(folder: Path, address: str, **more: object) -> list[str]:
    """Settings of a small run with the nano models that writes to ``folder``."""
    chosen: dict[str, object] = {
        "executor.base_url": address, "judge.base_url": address, "tracking.report_to": "none", "max_steps": 2,
        "rollout_batch_size": 3, "num_return_sequences_in_group": 3, "eval_problems": 4, "max_problems": 12,
        "save_every": 1, "eval_every": 2, "reward_threshold": -100, "output_dir": folder / "checkpoints",
        "log_dir": folder / "logs", "results_dir": folder / "results", "persistence_dir": folder / "buffer",
        "guidance": ROOT / "config/guidance.yaml", "enhancer": ROOT / "config/operator_descriptions/nano.yaml",
    }  # fmt: skip
    return [f"{name}={value}" for name, value in {**chosen, **more}.items()]
