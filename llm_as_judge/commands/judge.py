"""``llm-as-judge judge calibrate``: agreement of the configured judge with labelled pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.files import write_json

if TYPE_CHECKING:
    from llm_as_judge.judging.calibration import Counts

app = typer.Typer(help="Calibrate the judge on labelled pairs.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
@cli.grouped
def calibrate(
    options: cli.ConfigOptions,
    pairs: Annotated[
        Path,
        typer.Argument(metavar="PAIRS", exists=True, dir_okay=False, help="JSONL with gold, candidate and equivalent."),
    ],
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="rules, metric, llm or hybrid (default: configured mode).")
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks/--no-attacks", help="Also judge hostile rewritings of the candidates.")
    ] = True,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum number of pairs.")] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Measure agreement, false accepts and false rejects. The exit status is 1 if no pair is decided."""
    from llm_as_judge.assembly.services import open_judge
    from llm_as_judge.judging import calibration
    from llm_as_judge.views.terminal import calibration_table

    settings, console = options.load(**{"judge.mode": mode}), cli.make_console(as_json)
    labelled, mode = calibration.read_pairs(pairs)[:limit], settings.judge.own or settings.judge.mode
    hostile = (tuple(calibration.ATTACKS), calibration.CONSTANTS) if attacks else ((), ())

    async def count() -> "list[Counts]":
        async with open_judge(settings) as judge:
            concurrency = settings.judge.concurrency if settings.judge.asks_model else 1
            return await calibration.calibrate(judge, labelled, *hostile, concurrency=concurrency)

    counts = cli.run(count())  # plain candidates first
    kinds = [row.as_json() for row in counts]
    file = settings.output.results_dir / "judge" / f"{pairs.stem}_{mode}.json"
    names = ("pairs", "agreement", "kappa", "false_accepts", "false_rejects", "abstained")
    summary = {name: kinds[0][name] for name in names}
    result = {"mode": mode, **summary, "kinds": kinds, "line": counts[0].line(), "file": str(pairs)}
    write_json(file, result)
    console.print(calibration_table(counts))
    cli.show(console, f"results {file}")
    cli.print_result(result, as_json, counts[0].line())
    if abstained := counts[0].abstained:
        why = f"the judge abstained on {abstained} of {counts[0].pairs} pairs; the first: {counts[0].reason}"
        if not counts[0].decided:
            typer.echo(f"error: {why}; try --set judge.structured=false or another judge.model", err=True)
            raise typer.Exit(1)
        cli.show(console, why)
