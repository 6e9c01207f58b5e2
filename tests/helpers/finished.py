"""A finished training run with the nano models, and settings of small runs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config

EMBEDDED = "config/embedded.yaml"  # found from any folder
#: Examples are shown in the second step.
EVERY_PART = {"prompt_max_length": 2048, "lookahead": 0, "experience_buffer.top_k": 1}


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its ``checkpoints``, ``logs``, ``results`` and ``buffer`` are folders in ``folder``."""

    folder: Path
    address: str
    printed: str  # standard output of ``train``

    @property
    def log(self) -> Path:
        return self.folder / "logs/nano/grpo_mixed.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints/nano/grpo_mixed/step_2"

    @property
    def overrides(self) -> list[str]:
        """The run's settings as ``name=value``."""
        return run_settings(self.folder, self.address, **EVERY_PART)

    @property
    def options(self) -> list[str]:
        """The run's settings as options of the command line."""
        return as_options(self.overrides)

    def copy(self, folder: Path) -> "FinishedRun":
        """The same run in another folder, to change."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return FinishedRun(folder, self.address, self.printed)


def documented_24gb(root: Path, folder: Path) -> Config:
    """The configuration that docs/training.md gives for one 24 GB card; its data do not exist."""
    text = (root / "docs/training.md").read_text("utf-8").partition("### One 24 GB card")[2]
    file = folder / "one_24gb.yaml"
    file.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    return load_config(file, ["train_dataset=none.jsonl"])


def as_options(overrides: list[str]) -> list[str]:
    """Options of a command line that reads ``config/embedded.yaml`` by default; the last of two values."""
    return [word for override in {o.partition("=")[0]: o for o in overrides}.values() for word in ("--set", override)]


def run_settings(folder: Path, address: str, **more: object) -> list[str]:
    """Settings of a small run with the nano models that writes to ``folder``."""
    chosen: dict[str, object] = {
        "executor.base_url": address, "judge.base_url": address, "tracking.report_to": "none", "max_steps": 2,
        "rollout_batch_size": 3, "num_return_sequences_in_group": 3, "eval_problems": 4, "max_problems": 12,
        "save_every": 1, "eval_every": 2, "reward_threshold": -100, "output_dir": folder / "checkpoints",
        "log_dir": folder / "logs", "results_dir": folder / "results", "persistence_dir": folder / "buffer",
    }  # fmt: skip
    return [f"{name}={value}" for name, value in {**chosen, **more}.items()]
