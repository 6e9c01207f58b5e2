"""``llm-as-judge compare --ablate``: a training run for each part taken away and each seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.folder import open_folder
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.progress import Progress, Silent
from llm_as_judge.assembly.services import open_services
from llm_as_judge.commands.train_run import assemble
from llm_as_judge.config.identity import identity
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.ablation import Outcome, Worth, markdown, without, worths
from llm_as_judge.evaluation.evaluate import evaluate
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.files import write_json


@dataclass(frozen=True, slots=True)
class Ablation:
    """What each part was worth, over the seeds."""

    seeds: int
    full: Sequence[Outcome]
    parts: Sequence[Worth]
    file: Path

    @property
    def table(self) -> str:
        return markdown(self.full, self.parts)

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "full": [{"accuracy": run.accuracy, "tokens": run.tokens} for run in self.full],
            "parts": [part.as_json() for part in self.parts],
            "table": self.table,
        }


async def run_ablation(
    config: Config, parts: Sequence[str], seeds: int, *, progress: Progress | None = None
) -> Ablation:
    """Trains with everything and without each part, on seeds counted from ``training.seed``.

    ``results_dir/ablation_<run_name>.json`` has the figures and every run made so far, so that a comparison that was
    interrupted, or has more parts or seeds than before, trains only what is missing. Raises ``ConfigError`` for a part
    there is not.
    """
    progress = progress or Silent()
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    changes: dict[str, Mapping[str, object]] = {part: without(part, weights) for part in parts}
    if not changes:
        raise ConfigError("--ablate names no part")
    path = config.output.results_dir / f"ablation_{config.output.run_name}.json"
    runs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else {}

    async def outcomes(name: str, change: Mapping[str, object]) -> list[Outcome]:
        made = []
        for seed in range(config.training.seed, config.training.seed + seeds):
            settings = changed(config, change, name, seed)
            run_name, told = settings.output.run_name, identity(settings)
            label = f"{'everything' if name == 'full' else f'without {name}'}, seed {seed}"
            known = runs.get(run_name)
            if known is None or known["config"] != told:
                progress.say(label)
                known = runs[run_name] = {**(await _trained(settings, progress)).as_json(), "config": told}
                write_json(path, {"runs": runs})
            share, tokens = known["overall"], known["executor_tokens"]
            progress.say(f"{label}: {100 * share:.1f} % right, {tokens:.0f} tokens")
            made.append(Outcome(share, tokens))
        return made

    full = await outcomes("full", {})
    ablated = {part: await outcomes(part, change) for part, change in changes.items()}
    result = Ablation(seeds, full, worths(full, ablated), path)
    write_json(path, {**result.as_json(), "runs": runs})
    return result


async def _trained(config: Config, progress: Progress) -> Summary:
    """The held-out evaluation after a training run."""
    total = config.training.max_steps
    with open_folder(config, resume=False, progress=progress) as folder:
        async with open_services(config, progress) as services:
            author, problems = load_author(config), open_problems(config)
            run = folder.begin(problems.digest, progress)
            trainer = assemble(
                run,
                services,
                author,
                problems,
                lambda report: progress.advance("training", report.step, total),
                warn=progress.say,
            )
            await trainer.train()
            author = replace(author, version=trainer.step)
            return (await evaluate(problems.heldout, author, services.official)).summary


def changed(config: Config, change: Mapping[str, object], name: str, seed: int) -> Config:
    """``config`` with ``change`` by full names of settings, a seed, and a name of its own."""
    tree = config.model_dump(mode="json")
    for setting, value in {**change, "training.seed": seed}.items():
        section, _, leaf = setting.partition(".")
        tree[section][leaf] = value
    kind = "full" if name == "full" else f"without_{name.replace('.', '_')}"
    tree["output"]["run_name"] = run_name = f"{config.output.run_name}_{kind}_seed{seed}"
    if (folder := config.experience_buffer.persistence_dir) is not None:  # runs must not learn from each other
        tree["experience_buffer"]["persistence_dir"] = str(folder / run_name)
    made = Config.model_validate(tree)
    made._base_model = config._base_model
    return made
