"""``llm-as-judge compare --ablate``: a training run without each part and for each seed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.assembly.training import open_training
from llm_as_judge.config.identity import identity
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError, refusing
from llm_as_judge.evaluation.ablation import PARTS, HeldOut, without, worths
from llm_as_judge.evaluation.evaluate import evaluate
from llm_as_judge.evaluation.summary import Summary, summarise
from llm_as_judge.files import write_json
from llm_as_judge.views.terminal import ablation_table


async def run_ablation(
    config: Config, parts: Sequence[str], seeds: int, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Train with all parts and without each, with ``seeds`` seeds from ``training.seed`` on. Returns the results.

    ``results_dir/ablation_<run_name>.json`` keeps every finished run: an interrupted ablation, or one with more parts
    or seeds, trains only what is missing. Raises ``ConfigError`` for an unknown part.
    """
    if not parts:
        raise ConfigError(f"--ablate: no part named; give some of {', '.join(PARTS)}")
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    changes = {part: without(part, weights) for part in parts}
    path = config.output.results_dir / f"ablation_{config.output.run_name}.json"
    runs = _read(path) if path.exists() else {}

    async def results(name: str, change: Mapping[str, object]) -> list[HeldOut]:
        found = []
        for seed in range(config.training.seed, config.training.seed + seeds):
            settings = changed(config, change, name, seed)
            run_name, digest = settings.output.run_name, identity(settings)
            label = f"{'all parts' if name == 'full' else f'without {name}'}, seed {seed}"
            known = runs.get(run_name)
            if known is None or known["config"] != digest:
                progress.say(label)
                known = runs[run_name] = {**(await _trained(settings, progress)).as_json(), "config": digest}
                write_json(path, {"runs": runs})
            share, tokens = known["overall"], known["executor_tokens"]
            progress.say(f"{label}: {100 * share:.1f} % right, {tokens:.0f} tokens")
            found.append((share, tokens))
        return found

    full = await results("full", {})
    worth = worths(full, {part: await results(part, change) for part, change in changes.items()})
    result = {
        "seeds": seeds,
        "full": [{"accuracy": accuracy, "tokens": tokens} for accuracy, tokens in full],
        "parts": worth,
        "table": ablation_table(full, worth),
        "file": str(path),
    }
    write_json(path, {**result, "runs": runs})
    return result


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Read finished runs by name. Raises ``DataError`` for a file with other content."""
    with refusing(DataError, f"{path}: not a file of an ablation", "move it away to start a new one"):
        runs: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"]
        _ = [(run["config"], run["overall"], run["executor_tokens"]) for run in runs.values()]
        return runs


async def _trained(config: Config, progress: Progress) -> Summary:
    async with open_training(config, measured=True, progress=progress) as training:
        await training.train()
        return summarise(await evaluate(training.problems.heldout, training.trained, training.services.official))


def changed(config: Config, change: Mapping[str, object], name: str, seed: int) -> Config:
    """Return ``config`` with ``change`` by full names of settings, another seed and run name, and without tracking."""
    tree = config.model_dump(mode="json")
    for setting, value in {**change, "training.seed": seed, "tracking.report_to": ()}.items():
        section, _, leaf = setting.partition(".")
        tree[section][leaf] = value
    kind = "full" if name == "full" else f"without_{name.replace('.', '_')}"
    tree["output"]["run_name"] = f"{config.output.run_name}_{kind}_seed{seed}"
    copy = type(config).model_validate(tree)
    copy._base_model = config._base_model
    return copy
