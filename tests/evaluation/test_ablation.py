"""Ablations: settings that remove a part, paired intervals, and the command at a tiny scale."""

import math
from pathlib import Path

import pytest
from helpers.finished import EMBEDDED, run_settings

from llm_as_judge.commands.ablate import changed, run_ablation
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.ablation import PARTS, Outcome, difference, markdown, without, worths
from llm_as_judge.types import Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}


def test_the_interval_is_students_over_paired_seeds_and_the_table_shows_it() -> None:
    found = difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5])
    assert found.mean == pytest.approx(0.2)
    assert found.half == pytest.approx(4.30265 * 0.1 / math.sqrt(3), rel=1e-4)
    assert math.isnan(difference([0.6], [0.5]).half)
    full = [Outcome(0.6, 900.0), Outcome(0.7, 1000.0), Outcome(0.8, 1100.0)]
    table = markdown(full, worths(full, {"buffer": [Outcome(0.5, 1000.0)] * 3}))
    assert "| nothing | 70.0 | | 1000 | |" in table
    assert "| buffer | 50.0 | +20.0 [-4.8, +44.8] | 1000 | +0 [-248, +248] |" in table


def test_every_part_can_be_removed_from_the_shipped_configuration() -> None:
    config = load_config(EMBEDDED)
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
    moved = without("reward.efficiency", WEIGHTS)["reward.reward_weights"]
    assert moved == {**WEIGHTS, "efficiency": 0.0, "correctness": pytest.approx(0.8)}
    with pytest.raises(ConfigError, match=r"reward\.style"):
        without("reward.style", WEIGHTS)


async def test_a_file_that_is_no_ablation_is_refused(tmp_path: Path) -> None:
    config = load_config(EMBEDDED, [f"results_dir={tmp_path}"])
    for text in ("", "[]", '{"runs": []}', '{"runs": {"a": {"config": "x"}}}'):
        (tmp_path / f"ablation_{config.output.run_name}.json").write_text(text)
        with pytest.raises(DataError, match="move it away"):
            await run_ablation(config, ["buffer"], 1)


@pytest.mark.slow
async def test_the_ablation_trains_with_and_without_the_part_and_resumes(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"max_steps": 1, "num_return_sequences_in_group": 2, "eval_problems": 3, "max_problems": 6}
    config = load_config(EMBEDDED, run_settings(tmp_path, address, **more, **{"judge.mode": "rules"}))
    result = await run_ablation(config, ["buffer"], 1)
    assert [worth.part for worth in result.parts] == ["buffer"]
    assert len(result.full) == 1 and 0 <= result.full[0].accuracy <= 1
    assert result.file == tmp_path / "results/ablation_grpo_mixed.json" and result.file.exists()
    monkeypatch.setattr("llm_as_judge.commands.ablate._trained", None)  # finished runs are not trained again
    assert (await run_ablation(config, ["buffer"], 1)).as_json() == result.as_json()
