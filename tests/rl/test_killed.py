"""A run that is killed with pending batches and resumed trains the same bytes as an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from helpers.knowing import Knowing, knowing

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.rl.checkpoint import latest, step_of

EMBEDDED = Path(__file__).parents[2] / "config/embedded.yaml"
ADAPTER = "step_4/adapter_model.safetensors"


@dataclass
class Holding(Knowing):
    """Holds back replies once ``until`` exists."""

    until: Path = Path()
    held: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def reply(self, prompt: str, seed: int | None = None) -> str:
        if self.until.exists():
            self.held.set()
            self.let_go.wait(60)
        return super().reply(prompt, seed)


def settings(folder: Path, url: str) -> list[str]:
    return [
        f"executor.base_url={url}", "executor.provider=openai", "judge.mode=rules", "training.lookahead=2",
        "domain_ratios={math: 1, code: 0, qa: 0}", f"output_dir={folder / 'checkpoints'}", f"log_dir={folder / 'logs'}",
        f"results_dir={folder / 'results'}", f"persistence_dir={folder / 'buffer'}", "max_steps=4", "save_every=1",
        "rollout_batch_size=2", "num_return_sequences_in_group=3", "eval_problems=1", "max_problems=12",
        "plan_matrix=false", "baselines=false",
    ]  # fmt: skip


def command(changes: list[str]) -> list[str]:
    return ["train", "--config", str(EMBEDDED), *(word for change in changes for word in ("--set", change))]


@pytest.mark.slow
def test_a_killed_and_resumed_run_trains_the_same_bytes(tmp_path: Path) -> None:
    checkpoints = [tmp_path / name / "checkpoints/nano/grpo_mixed" for name in ("straight", "killed")]
    with knowing(served := Holding(until=checkpoints[1] / "step_1")):
        straight, killed = (settings(tmp_path / name, served.url) for name in ("straight", "killed"))
        for problem in open_problems(load_config(EMBEDDED, straight)).sampler.sample(30):
            served.tell(problem)
        assert main(command(straight)) == 0  # before the other, so that no reply is held back
        with subprocess.Popen([sys.executable, "-m", "llm_as_judge", *command(killed)]) as running:
            try:
                assert served.held.wait(60)
            finally:
                running.kill()
        served.let_go.set()
        newest = latest(checkpoints[1])
        assert newest is not None and step_of(newest) < 4
        pending = torch.load(newest / "state.pt", weights_only=True)["pending"]
        assert pending, "no batch was pending"
        assert main([*command(killed), "--resume"]) == 0
    expected, found = (folder.joinpath(ADAPTER).read_bytes() for folder in checkpoints)
    assert expected == found
    untrained = checkpoints[0] / "step_1/adapter_model.safetensors"
    assert expected != untrained.read_bytes()
