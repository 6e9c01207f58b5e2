"""The work of ``llm-as-judge judge calibrate``: the configured judge on labelled pairs, a table, a picture, a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from llm_as_judge.config.schema import Config
from llm_as_judge.endpoints import open_judge
from llm_as_judge.judging.calibration import ATTACKS, Counts, calibrate, read_pairs
from llm_as_judge.views.confusion import confusion_chart

_SUMMARY = ("pairs", "agreement", "kappa", "false_accepts", "false_rejects", "abstained")


def run_calibration(
    config: Config,
    path: Path,
    *,
    attacks: bool = True,
    limit: int | None = None,
    picture: Path | None = None,
    console: Console,
) -> dict[str, Any]:
    """Judges the pairs of ``path``; returns the counts by kind, the last line and where the picture is.

    Raises ``DataError`` for pairs that cannot be read and ``ProviderError`` where the judge's endpoint is down.
    """
    pairs = read_pairs(path)[:limit]

    async def judged() -> list[Counts]:
        async with open_judge(config) as judge:
            return await calibrate(judge, pairs, tuple(ATTACKS) if attacks else (), concurrency=_concurrency(config))

    counts = asyncio.run(judged())
    folder = config.output.results_dir / "judge"
    folder.mkdir(parents=True, exist_ok=True)
    picture = picture or folder / f"{path.stem}_{config.judge.mode}.png"
    rows = [row.as_json() for row in counts]
    confusion_chart(rows, picture, f"{path.stem}: judge, mode {config.judge.mode}")
    result = {
        "mode": config.judge.mode,
        "file": str(path),
        **{name: rows[0][name] for name in _SUMMARY},
        "kinds": rows,
        "line": counts[0].line(),
        "picture": str(picture),
    }
    picture.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    console.print(_table(counts))
    console.print(f"picture {picture}", highlight=False, soft_wrap=True)
    return result


def _concurrency(config: Config) -> int:
    return config.judge.concurrency if config.judge.mode != "rules" else 1


def _table(counts: Sequence[Counts]) -> Table:
    table = Table(title="verdicts by kind of candidate")
    for column in ("kind", "pairs", "agreement", "kappa", "false accepts", "false rejects", "abstained"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for row in counts:
        rates = ["-" if value is None else f"{value:.4f}" for value in (row.agreement, row.kappa)]
        numbers = (row.false_accepts, row.false_rejects, row.abstained)
        table.add_row(row.kind, str(row.pairs), *rates, *map(str, numbers))
    return table
