"""verl (0.9) with our environment: a custom reward function and parquet files. verl itself is not imported.

    python -m llm_as_judge.integrations.verl config/training.yaml data/verl
    python -m verl.trainer.main_ppo data.train_files=data/verl/train.parquet data.val_files=data/verl/test.parquet \\
        reward.custom_reward_function.path=pkg://llm_as_judge.integrations.verl \\
        +reward.custom_reward_function.reward_kwargs.config=$PWD/config/training.yaml ...

verl runs the function in its own Ray workers (``reward.num_workers``), each with its own sandbox and clients: divide
``executor.concurrency`` by their number (``+...reward_kwargs.overrides=[executor.concurrency=4]``). verl needs a reward
for every rollout, so one that cannot be scored is retried for ``training.patience_s``, then raises.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, InfrastructureError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import RECORD, shared_scorer
from llm_as_judge.rl.rollout import doubling_waits


async def compute_score(
    data_source: str, solution_str: str, ground_truth: object = None, extra_info: Mapping[str, Any] | None = None, *,
    config: str = "config/training.yaml", overrides: Sequence[str] = (), **_: Any,
) -> dict[str, Any]:  # fmt: skip
    """``score`` is the reward, ``acc`` 1 or 0; the other keys are outcome, executor tokens and reward terms.

    Raises ``DataError`` for a row that this module did not export, ``InfrastructureError`` for a rollout that could not
    be scored within ``training.patience_s``.
    """
    scorer, row = shared_scorer(config, tuple(overrides)), {RECORD: (extra_info or {}).get(RECORD, "")}
    waits = doubling_waits(scorer.config.training.patience_s)
    while (rollout := await scorer.score(row, solution_str)).reward.total is None:
        if (wait := next(waits, None)) is None:
            patience = scorer.config.training.patience_s
            raise InfrastructureError(f"a workflow could not be scored for {patience:.0f} s: {rollout.trouble}")
        await asyncio.sleep(wait)
    return {  # always the same keys: verl makes columns of them
        "score": rollout.reward.total,
        "acc": float(rollout.verdict.correct is True),
        "outcome": rollout.execution.outcome,
        "executor_tokens": rollout.tokens,
        **{name: float(value) for name, value in rollout.reward.terms.items()},
    }


def export(config: Config, folder: Path, count: int | None = None, heldout: int | None = None) -> tuple[Path, Path]:
    """Write ``train.parquet`` (default: as many problems as a whole run) and ``test.parquet``.

    Raises ``ConfigError`` without the package ``datasets``.
    """
    try:
        from datasets import Dataset
    except ImportError as error:
        raise ConfigError(f"parquet needs an extra: python -m pip install 'llm-as-judge[data]' ({error})") from error
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "train.parquet", folder / "test.parquet"
    for file, rows in zip(files, (training_rows(config, count), heldout_rows(config, heldout)), strict=True):
        Dataset.from_list([_row(row, i, file.stem) for i, row in enumerate(rows)]).to_parquet(str(file))
    return files


def _row(row: Mapping[str, Any], index: int, split: str) -> dict[str, Any]:
    return {
        "data_source": row["dataset"] or row["domain"],
        "prompt": row["prompt"],
        "ability": row["domain"],
        "reward_model": {"style": "rule", "ground_truth": ""},  # the whole problem is in extra_info
        "extra_info": {"index": index, "split": split, "id": row["id"], RECORD: row[RECORD]},
    }


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m llm_as_judge.integrations.verl CONFIG FOLDER [NAME=VALUE ...]\n")
        return 2
    config, folder, *overrides = arguments
    for file in export(load_config(config, overrides), Path(folder)):
        sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
