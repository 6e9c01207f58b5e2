"""The work of ``llm-as-judge compare --ablate``: a training run for each part taken away and each seed, and a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from llm_as_judge.config import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import Outcome, Row, markdown, rows, without
from llm_as_judge.grpo_trainer import run_training


def run_ablation(config: Config, parts: Sequence[str], seeds: int, *, console: Console) -> dict[str, Any]:
    """Trains with everything and without each part, on seeds counted from ``training.seed``.

    Returns the table's figures, written to ``results_dir/ablation_<run_name>.json`` as well. Raises ``ConfigError`` for
    a part there is not.
    """
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    changes = {part: without(part, weights) for part in parts}
    if not changes:
        raise ConfigError("--ablate names no part")
    first = config.training.seed
    full = [_run(config, {}, "full", seed, console) for seed in range(first, first + seeds)]
    ablated = {
        part: [_run(config, change, part, seed, console) for seed in range(first, first + seeds)]
        for part, change in changes.items()
    }
    found = rows(full, ablated)
    result = {"seeds": seeds, "full": [_json(run) for run in full], "parts": [_row(row) for row in found]}
    result["table"] = markdown(full, found)
    folder = config.output.results_dir
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ablation_{config.output.run_name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    console.print(f"figures {path}")
    return result


def changed(config: Config, change: Mapping[str, object], name: str, seed: int) -> Config:
    """``config`` with ``change`` by full names of settings, a seed, and a name of its own."""
    tree = config.model_dump(mode="json")
    for setting, value in {**change, "training.seed": seed}.items():
        section, _, leaf = setting.partition(".")
        tree[section][leaf] = value
    tree["output"]["run_name"] = f"{config.output.run_name}_without_{name.replace('.', '_')}_seed{seed}"
    if name == "full":
        tree["output"]["run_name"] = f"{config.output.run_name}_full_seed{seed}"
    if config.experience_buffer.persistence_dir is not None:  # runs must not learn from each other
        tree["experience_buffer"]["persistence_dir"] = str(
            config.experience_buffer.persistence_dir / tree["output"]["run_name"]
        )
    made = Config.model_validate(tree)
    made._folder = config._folder
    return made


def _run(config: Config, change: Mapping[str, object], name: str, seed: int, console: Console) -> Outcome:
    console.print(f"ablation: without {'nothing' if name == 'full' else name}, seed {seed}")
    after = run_training(changed(config, change, name, seed), resume=False, console=console)["after"]
    return Outcome(after["overall"], after["executor_tokens"])


def _json(run: Outcome) -> dict[str, float]:
    return {"accuracy": run.accuracy, "tokens": run.tokens}


def _row(row: Row) -> dict[str, Any]:
    return {
        "part": row.part,
        "accuracy": row.accuracy,
        "tokens": row.tokens,
        "worth": [row.worth.mean, row.worth.half],
        "tokens_added": [row.saved.mean, row.saved.half],
    }
