"""TRL's own ``GRPOTrainer`` trains the nano policy in our environment, and learns nothing with constant rewards."""

import re
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.knowing import Knowing, Loads
from helpers.rollouts import rollout

from llm_as_judge.config.loading import locate_weights, to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.integrations.score import problem_of
from llm_as_judge.integrations.trl import WorkflowReward, dataset, grpo_arguments
from llm_as_judge.policy.model import lora_arguments
from llm_as_judge.policy.weights import load_folder
from llm_as_judge.workflow.shapes import SHAPES, workflow

trl = pytest.importorskip("trl", reason="trl is not installed; make peers installs it")

from peft import LoraConfig  # noqa: E402

STEPS = 6


def trained(config: Config, reward: Any, rows: Any) -> list[dict[str, float]]:
    tokenizer, model = load_folder(locate_weights(config.base_model.path), "float32")
    assert grpo_arguments(config)["model_init_kwargs"] == {"dtype": "float32"}, "TRL's default is the file's"
    arguments = grpo_arguments(config) | {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1}
    quiet: dict[str, Any] = {"report_to": [], "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    quiet["gradient_checkpointing"] = False
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, lora = trl.GRPOConfig(output_dir="out", **arguments, **quiet), LoraConfig(**lora_arguments(config.model))
        given = {"processing_class": tokenizer, "args": args, "train_dataset": rows, "peft_config": lora}
        trainer = trl.GRPOTrainer(model=model, reward_funcs=reward, **given)
        trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def quick(config: Loads) -> Config:
    return config(
        f"max_steps={STEPS}", "rollout_batch_size=2", "training.beta=0", "learning_rate=1e-2", "scale_rewards=group"
    )


@pytest.mark.slow
@pytest.mark.parametrize("plugged", [True, False])
def test_the_mean_rises_only_with_our_reward(plugged: bool, executor: Knowing, config: Loads) -> None:
    settings = quick(config)
    rows = dataset(settings)
    executor.tell(*map(problem_of, rows))
    reward = WorkflowReward(settings)
    means: list[float] = []

    async def watched(**given: Any) -> list[float | None]:
        found = await reward(**given)
        assert all(value is not None for value in found)
        means.append(sum(value or 0 for value in found) / len(found))
        return found if plugged else [1.0] * len(found)

    with closing(reward.scorer):
        log = trained(settings, watched, rows)
    assert [entry["workflow/unscored"] for entry in log] == [0.0] * STEPS
    assert 0 < log[0]["workflow/efficiency"] <= 10
    if plugged:
        assert means == pytest.approx([entry["reward"] for entry in log], abs=1e-3)
        assert sum(means[-2:]) / 2 - sum(means[:2]) / 2 > 2, means
    else:  # constant rewards differ from none of their group, so that the weights stay as they are
        assert [entry["grad_norm"] for entry in log] == [0.0] * STEPS


@pytest.mark.slow
def test_the_pages_snippet_runs_as_written(executor: Knowing, config: Loads, caplog: pytest.LogCaptureFixture) -> None:
    page = (Path(__file__).parents[2] / "docs/integrations.md").read_text(encoding="utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "GRPOTrainer(" in code]
    settings = config("max_steps=1", "rollout_batch_size=2", "num_return_sequences_in_group=4")
    executor.tell(*map(problem_of, dataset(settings)))
    Path("config").mkdir()
    Path("config/training.yaml").write_text(to_yaml(settings), encoding="utf-8")
    torch.set_num_threads(1)
    names: dict[str, Any] = {}
    exec(code, names)
    assert executor.asked > 0 and "were cut off" not in caplog.text
    assert names["config"].training.max_steps == 1


async def test_a_batch_from_trl(executor: Knowing, config: Loads) -> None:
    settings = config("response_max_length=8")
    rows = dataset(settings, 1)
    executor.tell(problem_of(rows[0]))
    reward, logged = WorkflowReward(settings), dict[str, Any]()
    text = workflow(SHAPES["program"], "math")
    batch: dict[str, Any] = {
        "prompts": list(rows["prompt"]) * 3, "completions": [[{"role": "assistant", "content": text}], text, text],
        "completion_ids": [[5] * 7, [5] * 7 + [reward._eos], [5] * 8], "log_metric": logged.__setitem__,
        "log_extra": logged.__setitem__,
    }  # fmt: skip
    with closing(reward.scorer):
        with pytest.raises(ConfigError, match="record"):
            await reward(**batch)
        batch["record"] = list(rows["record"]) * 3
        whole, ended, cut = await reward(**batch)
        assert whole == ended and whole is not None and cut is not None and cut < 0 < whole
        assert logged["outcome"] == ["finished", "finished", "invalid"]
        assert logged["workflow/accuracy"] == pytest.approx(2 / 3)
        executor.down = True
        batch["trainer_state"] = SimpleNamespace(global_step=1)  # other seeds, so that no reply is cached
        assert await reward(**batch) == [None, None, cut]
        assert logged["workflow/unscored"] == pytest.approx(2 / 3)

    async def scored(row: Any, text: str, **more: Any) -> Any:
        one = next(done)
        return replace(one, verdict=replace(one.verdict, tier="llm"))

    batch["log_metric"] = batch["log_extra"] = None
    batch["record"], batch["completions"], batch["completion_ids"] = ["a", "a", "b", "b"], [text] * 4, [[5]] * 4
    done = iter(rollout(problem_of(rows[0]), correct) for correct in (True, None, True, False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward.scorer, "score", scored)
        found = await reward(**batch)
    assert found[:2] == [None, None] and None not in found[2:], "a group with an abstention is left out whole"
