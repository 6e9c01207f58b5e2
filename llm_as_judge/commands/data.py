"""``llm-as-judge data``: benchmarks from raw files to a mixed training set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands.options import AsJson, make_console, names_in, picture, print_json

if TYPE_CHECKING:
    from llm_as_judge.data.settings import DatasetSettings

app = typer.Typer(help="Download, check, split, mix and look at problems.", no_args_is_help=True, rich_markup_mode=None)

Settings = Annotated[
    Path | None,
    typer.Option("--config", dir_okay=False, help="YAML of the datasets; config/dataset.yaml by default."),
]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--datasets", metavar="NAME,...", help="Names separated by commas; by default those of the file."),
]
Raw = Annotated[Path, typer.Option("--raw", metavar="DIR", help="Folder of the raw files.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the results.")]

_RAW = Path("data/raw")
_OUT = Path("data")
_SHOWN = 21  # lines of one report


def _settings(path: Path | None, datasets: list[str] | None, **changes: Any) -> DatasetSettings:
    from llm_as_judge.data.settings import load_settings

    if datasets is not None:
        changes["datasets"] = [name for name in names_in(datasets) if name != "none"]
    return load_settings(path, changes)


@app.command()
def process(
    config: Settings = None,
    raw: Raw = _RAW,
    out: Out = _OUT,
    split: Annotated[
        str, typer.Option(metavar="plan-c|official", help="Pool and split 5:1 by question, or the published splits.")
    ] = "plan-c",
    datasets: Datasets = None,
    custom: Annotated[
        list[Path] | None, typer.Option("--custom", metavar="FILE", help="JSONL of your own problems; may be repeated.")
    ] = None,
    train_size: Annotated[int | None, typer.Option(metavar="N", help="Number of lines in the training mix.")] = None,
    test_size: Annotated[int | None, typer.Option(metavar="N", help="Number of lines in the test mix.")] = None,
    ratios: Annotated[
        str | None, typer.Option(metavar="MATH:QA:CODE", help="Shares of the domains, such as 4:3:3.")
    ] = None,
    val_fraction: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the training part to keep for validation.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of split and mix.")] = None,
    any_split: Annotated[
        bool, typer.Option("--any-split", help="Pool the splits that have files where the configured one has none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Split and mix the raw files; info.json is written last."""
    from llm_as_judge.data.process import Job
    from llm_as_judge.data.process import process as run

    console = make_console(as_json)
    if custom and datasets is None and not _any_there(_settings(config, None), raw):
        datasets = ["none"]
        console.print(f"no benchmark is in {raw}: your own problems alone", markup=False, highlight=False)
    settings = _settings(
        config, datasets, train_size=train_size, test_size=test_size, val_fraction=val_fraction, seed=seed,
        domain_ratios=_ratios(ratios),
    )  # fmt: skip
    job = Job(
        settings, raw, out, mode=split, custom=tuple(custom or ()), any_split=any_split,  # type: ignore[arg-type]
        tell=lambda line: console.print(line, markup=False, highlight=False),
    )  # fmt: skip
    info = run(job)
    if as_json:
        print_json(info)
        return
    for note in info["notes"]:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    written = ", ".join(str(out / folder) for folder in ("mixed", "test", "processed"))
    console.print(f"written: {written}", markup=False, highlight=False, soft_wrap=True)


def _any_there(settings: DatasetSettings, raw: Path) -> bool:
    from llm_as_judge.data.settings import splits_there

    return any(splits_there(raw, name, source) for name, source in settings.sources(settings.mix.datasets).items())


def _ratios(text: str | None) -> dict[str, float] | None:
    from llm_as_judge.errors import ConfigError

    if text is None:
        return None
    try:
        math, qa, code = (float(part) for part in text.split(":"))
    except ValueError:
        raise ConfigError(f"--ratios {text!r}: give three numbers, math:qa:code, such as 4:3:3") from None
    return {"math": math, "qa": qa, "code": code}


@app.command()
def check(
    config: Settings = None,
    raw: Raw = _RAW,
    datasets: Datasets = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="A file or folder of your own problems, not the benchmarks; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge every problem's own answer; exit status 1 if one is not judged correct."""
    import asyncio
    import dataclasses

    from llm_as_judge.config.schema import SandboxConfig
    from llm_as_judge.data.catalog import DATASETS
    from llm_as_judge.data.check import GoldReport, check_golds
    from llm_as_judge.data.settings import raw_files, splits_there
    from llm_as_judge.errors import DataError
    from llm_as_judge.sandbox.host import Sandbox

    settings = _settings(config, datasets)
    files = {str(path): [path] for path in file or ()}
    if datasets or not file:
        sources = settings.sources(settings.mix.datasets if datasets else list(settings.datasets))
        for name, source in sources.items():
            splits = splits_there(raw, name, source)
            files[name] = [path for split in splits for path in raw_files(raw, name, source, split)]
        if not any(files.values()):
            raise DataError(f"{raw}: none of {', '.join(sources)} is there; --raw names their folder")
    console = make_console(as_json)

    async def run() -> dict[str, GoldReport]:
        reports = {}
        async with Sandbox(SandboxConfig(cpu_seconds=10)) as sandbox:
            for name, paths in files.items():
                if not paths:
                    console.print(f"{name}: not there")
                    continue
                report = reports[name] = await check_golds(paths, DATASETS.get(name), sandbox, settings.fields)
                judged = f"{report.golds} answers of {report.records} records, {len(report.failures)} faults"
                lines = [f"{name}: {judged}", *(f"  {failure.id}: {failure.reason}" for failure in report.failures)]
                if len(lines) > _SHOWN:
                    lines[_SHOWN:] = [f"  ... and {len(lines) - _SHOWN} more (--json tells all)"]
                console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        return reports

    reports = asyncio.run(run())
    if as_json:
        print_json({name: dataclasses.asdict(report) for name, report in reports.items()})
    if any(report.failures for report in reports.values()):
        raise typer.Exit(1)


@app.command()
def download(
    config: Settings = None,
    raw: Raw = _RAW,
    datasets: Datasets = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the raw files from the Hugging Face hub; continues where it stopped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from llm_as_judge.data.download import download as run

    settings = _settings(config, datasets)
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=make_console(as_json)) as bars:

        def progress(name: str, split: str, done: int, total: int) -> None:
            title = f"{name} {split}"
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total)
            bars.update(tasks[title], completed=done)

        manifest = run(settings, raw, settings.mix.datasets, progress=progress)
    if as_json:
        print_json(manifest)


@app.command()
def inspect(
    out: Out = _OUT,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A file or folder of problems, not a processed folder."),
    ] = None,
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Number of examples per dataset.")] = 1,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png", metavar="FILE", callback=picture, help="Picture of the mix; DIR/mixed/mix.png by default."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show counts, lengths and examples of what was processed, and draw the mix."""
    from llm_as_judge.data.overview import inspect_file, inspect_folder
    from llm_as_judge.data.settings import field_spellings
    from llm_as_judge.views.charts import mixture_chart

    if file is None:
        result = inspect_folder(out, examples)
    else:
        result = {"sides": {file.name: inspect_file(file, examples, field_spellings())}}
    target = png or (None if file else out / "mixed/mix.png")
    if target:
        mixture_chart(result["sides"], target)
        result = {**result, "picture": str(target)}
    if as_json:
        print_json(result)
        return
    _print_overview(result)


def _print_overview(result: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = make_console(False)
    for side, sets in result["sides"].items():
        table = Table("dataset", "domain", "lines", "unique", "each", "median", "95 %", "longest", title=Text(side))
        for name, facts in sets.items():
            length = facts["length"]
            numbers = (facts["lines"], facts["unique"], facts["repetition"], *length.values())
            table.add_row(Text(name), facts["domain"], *(f"{number:,}" for number in numbers))
        console.print(table)
        for facts in sets.values():
            for example in facts["examples"]:
                for field, text in example.items():
                    console.print(f"  {field}: {text}", markup=False, highlight=False, soft_wrap=True)
                console.print()
    for note in result.get("notes", []):
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if "picture" in result:
        console.print(f"picture: {result['picture']}", markup=False, highlight=False, soft_wrap=True)
