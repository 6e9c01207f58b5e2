"""The work of ``llm-as-judge compare --ablate``: a training run for each part taken away and each seed, and a table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import Outcome, Row, markdown, rows, without
from llm_as_judge.evaluation.evaluate import Summary, evaluate_policy, summarise
from llm_as_judge.grpo_trainer import prepare
from llm_as_judge.views.terminal import progress_bar
from llm_as_judge.workbench import Workbench, held_out_sampling, heldout_problems


def run_ablation(config: Config, parts: Sequence[str], seeds: int, *, console: Console) -> dict[str, Any]:
    """Trains with everything and without each part, on seeds counted from ``training.seed``.

    Returns the table's figures. ``results_dir/ablation_<run_name>.json`` has them and every run made so far, so that a
    comparison that was interrupted, or has more parts or seeds than before, trains only what is missing. Raises
    ``ConfigError`` for a part there is not.
    """
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    changes: dict[str, Mapping[str, object]] = {part: without(part, weights) for part in parts}
    if not changes:
        raise ConfigError("--ablate names no part")
    path = config.output.results_dir / f"ablation_{config.output.run_name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else {}

    def write(**figures: Any) -> None:
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps({**figures, "runs": runs}, indent=2) + "\n", encoding="utf-8")
        aside.replace(path)

    def outcomes(name: str, change: Mapping[str, object]) -> list[Outcome]:
        made = []
        for seed in range(config.training.seed, config.training.seed + seeds):
            settings = changed(config, change, name, seed)
            run_name, text = settings.output.run_name, to_yaml(settings)
            label = "everything" if name == "full" else f"without {name}"
            known = runs.get(run_name)
            if known is None or known["config"] != text:
                console.print(f"{label}, seed {seed}", highlight=False)
                after = asyncio.run(_trained(settings, console))
                known = runs[run_name] = {**after.as_json(), "config": text}
                write()
            share, tokens = known["overall"], known["executor_tokens"]
            console.print(f"{label}, seed {seed}: {100 * share:.1f} % right, {tokens:.0f} tokens", highlight=False)
            made.append(Outcome(share, tokens))
        return made

    full = outcomes("full", {})
    found = rows(full, {part: outcomes(part, change) for part, change in changes.items()})
    result = {"seeds": seeds, "full": [_json(run) for run in full], "parts": [_row(row) for row in found]}
    result["table"] = markdown(full, found)
    write(**result)
    console.print(f"figures {path}", highlight=False, soft_wrap=True)
    return result


async def _trained(config: Config, console: Console) -> Summary:
    """The held-out evaluation after a training run."""
    total = config.training.max_steps
    async with Workbench(config) as bench:
        with progress_bar(console) as progress:
            task = progress.add_task("training", total=total)
            run = prepare(
                config, bench, resume=False, on_step=lambda report: progress.update(task, completed=report.step)
            )
            await run.trainer.train()
        sampled = held_out_sampling(config, bench, run.policy, run.engine)
        rollouts = await evaluate_policy(heldout_problems(config), sampled, bench.rollout_parts(bench.official))
    return summarise(rollouts, sampled.special_tokens)


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
