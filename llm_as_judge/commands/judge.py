"""``llm-as-judge judge calibrate``: agreement of the configured judge with labelled pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands import cli
from llm_as_judge.files import write_json

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.judging.calibration import Counts

app = typer.Typer(help="Calibrate the judge on labelled pairs.", no_args_is_help=True, rich_markup_mode=None)

_SUMMARY = ("pairs", "agreement", "kappa", "false_accepts", "false_rejects", "abstained")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Verdicts by kind of candidate, plain ones first."""

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
    """Judge the pairs of ``path``, draw the confusion by kind and write the counts next to the picture.

    Raises ``DataError`` for unreadable pairs and ``ProviderError`` if the judge's endpoint is down.
    """
    from llm_as_judge.assembly.services import open_judge
    from llm_as_judge.judging.calibration import ATTACKS, CONSTANTS, calibrate, read_pairs
    from llm_as_judge.views.charts import confusion_chart

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


@app.callback()
def _judge() -> None: ...


@app.command()
@cli.grouped
def calibrate(
    options: cli.ConfigOptions,
    pairs: Annotated[
        Path,
        typer.Argument(metavar="PAIRS", exists=True, dir_okay=False, help="JSONL with gold, candidate and equivalent."),
    ],
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="rules, llm or hybrid (default: configured mode).")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", callback=cli.picture, help="File of the confusion chart.")
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="Also judge hostile rewritings of the candidates.")
    ] = True,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Maximum number of pairs.")] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Measure agreement, false accepts and false rejects."""
    import asyncio

    from llm_as_judge.views.terminal import calibration_table

    settings, console = options.load(**{"judge.mode": mode}), cli.make_console(as_json)
    result = asyncio.run(run_calibration(settings, pairs, attacks=attacks, limit=limit, picture=png))
    console.print(calibration_table(result.counts))
    cli.show(console, f"picture {result.picture}")
    if as_json:
        cli.print_json(result.as_json())
    else:
        typer.echo(result.counts[0].line())
