"""``llm-as-judge judge calibrate``: the configured judge on labelled pairs, with a picture and a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.services import open_judge
from llm_as_judge.config.schema import Config
from llm_as_judge.files import write_json
from llm_as_judge.judging.calibration import ATTACKS, CONSTANTS, Counts, calibrate, read_pairs
from llm_as_judge.views.charts import confusion_chart

_SUMMARY = ("pairs", "agreement", "kappa", "false_accepts", "false_rejects", "abstained")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Verdicts by kind of candidate, the plain ones first."""

    mode: str
    file: Path
    counts: Sequence[Counts]
    picture: Path

    def as_json(self) -> dict[str, Any]:
        kinds = [row.as_json() for row in self.counts]
        return {
            "mode": self.mode,
            "file": str(self.file),
            **{name: kinds[0][name] for name in _SUMMARY},
            "kinds": kinds,
            "line": self.counts[0].line(),
            "picture": str(self.picture),
        }


async def run_calibration(
    config: Config, path: Path, *, attacks: bool = True, limit: int | None = None, picture: Path | None = None
) -> Calibration:
    """Judges the pairs of ``path``, draws the confusion by kind and writes the counts beside the picture.

    Raises ``DataError`` for pairs that cannot be read and ``ProviderError`` where the judge's endpoint is down.
    """
    pairs, mode = read_pairs(path)[:limit], config.judge.mode
    async with open_judge(config) as judge:
        concurrency = config.judge.concurrency if mode != "rules" else 1
        hostile = (tuple(ATTACKS), CONSTANTS) if attacks else ((), ())
        counts = await calibrate(judge, pairs, *hostile, concurrency=concurrency)
    picture = picture or config.output.results_dir / "judge" / f"{path.stem}_{mode}.png"
    result = Calibration(mode, path, counts, picture)
    confusion_chart([row.as_json() for row in counts], picture, f"{path.stem}: judge, mode {mode}")
    write_json(picture.with_suffix(".json"), result.as_json())
    return result
