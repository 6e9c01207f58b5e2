"""Ablations: settings that remove a part, paired intervals, and the command at a tiny scale."""

from __future__ import annotations

import math
import socket
from pathlib import Path

import pytest

from llm_as_judge.assembly.progress import Silent
from llm_as_judge.commands.ablate import changed, run_ablation
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import PARTS, Outcome, difference, markdown, without, worths
from llm_as_judge.types import Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

ROOT = Path(__file__).parents[2]
WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}


def test_the_interval_is_students_over_paired_seeds() -> None:
    found = difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5])
    assert found.mean == pytest.approx(0.2)
    assert found.half == pytest.approx(4.30265 * 0.1 / math.sqrt(3), rel=1e-4)
    assert math.isnan(difference([0.6], [0.5]).half)


def test_a_reward_terms_weight_goes_to_correctness() -> None:
    changed = without("reward.efficiency", WEIGHTS)["reward.reward_weights"]
    assert changed == {**WEIGHTS, "efficiency": 0.0, "correctness": pytest.approx(0.8)}
    with pytest.raises(ConfigError, match=r"reward\.style"):
        without("reward.style", WEIGHTS)


def test_every_part_can_be_removed_from_the_shipped_configuration() -> None:
    shared = {"guidance": "config/guidance.yaml", "enhancer": "config/operator_descriptions/nano.yaml"}
    config = load_config(ROOT / "config/embedded.yaml", [f"{k}={ROOT / v}" for k, v in shared.items()])
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    for part in PARTS:
        made = changed(config, without(part, weights), part, 7)
        prompt = Layer1(made.workflow)(Question("q", "2+2?", "math"))
        assert made.training.seed == 7 and made.output.run_name.endswith("seed7")
        assert bool(prompt.system) is (part != "layer1")
        assert bool(load_enhancer(made.workflow).as_json()) is (part != "layer2")
        assert made.experience_buffer.enabled is (part != "buffer")
        assert ("2+2?" in prompt.user) is (part != "problem")
        assert made.training.shuffle_rewards is (part == "rewards")
        gone = [term for term, weight in made.reward.reward_weights.items() if not weight]
        assert gone == ([part.removeprefix("reward.")] if part.startswith("reward.") else [])


def test_the_table_shows_accuracy_tokens_and_intervals() -> None:
    full = [Outcome(0.6, 900.0), Outcome(0.7, 1000.0), Outcome(0.8, 1100.0)]
    table = markdown(full, worths(full, {"buffer": [Outcome(0.5, 1000.0)] * 3}))
    assert "| nothing | 70.0 | | 1000 | |" in table
    assert "| buffer | 50.0 | +20.0 [-4.8, +44.8] | 1000 | +0 [-248, +248] |" in table


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.slow
async def test_the_ablation_trains_with_and_without_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{s.getsockname()[1]}/v1"
    settings = {
        "executor.base_url": address, "judge.base_url": address, "max_steps": 1, "rollout_batch_size": 3,
        "num_return_sequences_in_group": 2, "eval_problems": 3, "max_problems": 6, "judge.mode": "rules",
        "output_dir": tmp_path / "checkpoints", "log_dir": tmp_path / "logs", "results_dir": tmp_path / "results",
        "guidance": ROOT / "config/guidance.yaml", "enhancer": ROOT / "config/operator_descriptions/nano.yaml",
    }  # fmt: skip
    config = load_config(ROOT / "config/embedded.yaml", [f"{name}={value}" for name, value in settings.items()])
    result = await run_ablation(config, ["buffer"], 1, progress=(said := Said()))
    assert [worth.part for worth in result.parts] == ["buffer"]
    assert len(result.full) == 1 and 0 <= result.full[0].accuracy <= 1
    assert result.file == tmp_path / "results/ablation_grpo_mixed.json" and result.file.exists()
    assert result.table.count("\n") == 3
    assert sum("without buffer, seed 0" in line for line in said.lines) == 2 and "tokens" in said.lines[-1]
    # Finished runs are not trained again.
    monkeypatch.setattr("llm_as_judge.commands.ablate._trained", None)
    again = await run_ablation(config, ["buffer"], 1)
    assert again.as_json() == result.as_json()
