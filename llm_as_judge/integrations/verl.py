"""verl (0.9) with our environment: parquet files, and what the agent loop of ``verl_loop`` asks. It imports no verl.

python -m llm_as_judge.integrations.verl CONFIG FOLDER [NAME=VALUE ...]
"""

import asyncio
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.sources import find_file
from llm_as_judge.errors import InfrastructureError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import RECORD, Scorer
from llm_as_judge.rewards.terms import TERMS
from llm_as_judge.rl.rollout import doubling_waits
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Attempt

AGENT = "llm_as_judge"


class Actor:
    """The executor, sandbox and judge of all rollouts of a cluster: Ray runs one of these."""

    def __init__(self, config: str, overrides: Sequence[str] = ()) -> None:
        self._scorer, self._answered = Scorer(config, overrides), 0

    async def turn(
        self, record: str, text: str, finish_reason: Literal["stop", "length"], place: Sequence[object],
        attempts: tuple[Attempt, ...] = (), last: bool = False,
    ) -> Attempt | tuple[float | None, dict[str, Any]]:  # fmt: skip
        """Return the failed attempt, if the policy may repair it; else the reward, None if unscored, and figures.

        ``place`` in the run gives the executor's seed; ``last``: there is no room for a repair. A failure of ours is
        waited for; the fourth leaves a rollout unscored if others were scored meanwhile. Raises ``InfrastructureError``
        if all fail for ``training.patience_s``, ``DataError`` for a row that this module did not export.
        """
        config, before, tries = self._scorer.config, self._answered, 0
        seed, waits = derived_seed(config.training.seed, *place), doubling_waits(config.training.patience_s)
        while True:
            ended = await self._scorer.turn({RECORD: record}, text, finish_reason, seed, attempts, last)
            if isinstance(ended, Attempt):
                return ended
            correct, terms, tries = ended.verdict.correct, ended.reward.terms, tries + 1
            if correct is not None or ended.verdict.abstained or (tries > 3 and self._answered > before):
                break
            if (wait := next(waits, None)) is None:
                raise InfrastructureError(f"a workflow could not be scored, nor any other: {ended.trouble}")
            await asyncio.sleep(wait)
        self._answered += correct is not None and ended.tokens > 0
        return ended.reward.total, {  # always the same keys: verl makes columns of them
            "acc": math.nan if correct is None else float(correct),
            "outcome": ended.execution.outcome,
            "finish_reason": finish_reason,
            "executor_tokens": ended.tokens,
            **{name: terms.get(name, math.nan) for name in (*TERMS, *config.reward.functions)},
        }


def export(config: str, overrides: Sequence[str], folder: Path, number: int | None = None) -> None:
    """Write ``train.parquet``, ``test.parquet`` and ``agent.yaml``, the agent loop of their rows.

    ``number`` problems in each; by default as many as a whole run, and all held-out ones.
    """
    from datasets import Dataset

    folder.mkdir(parents=True, exist_ok=True)
    loop = {"name": AGENT, "_target_": "llm_as_judge.integrations.verl_loop.WorkflowLoop", "overrides": [*overrides]}
    loop["config"] = str(find_file(Path(config)).resolve())
    (folder / "agent.yaml").write_text(yaml.safe_dump([loop]), encoding="utf-8")
    for split, rows in (("train", training_rows), ("test", heldout_rows)):
        made = [
            {
                "data_source": row["dataset"] or row["domain"],
                "prompt": row["prompt"],
                "agent_name": AGENT,
                "reward_model": {"style": "rule", "ground_truth": ""},  # the whole problem is in extra_info
                "extra_info": {"index": index, "split": split, "id": row["id"], RECORD: row[RECORD]},
            }
            for index, row in enumerate(rows(load_config(config, overrides), number))
        ]
        Dataset.from_list(made).to_parquet(str(folder / f"{split}.parquet"))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m llm_as_judge.integrations.verl CONFIG FOLDER [NAME=VALUE ...]")
    export(sys.argv[1], sys.argv[3:], Path(sys.argv[2]))
