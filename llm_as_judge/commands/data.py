"""``llm-as-judge data``: from raw benchmark files to a mixed training set."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, DataError

if TYPE_CHECKING:
    from llm_as_judge.config.data import DataConfig
    from llm_as_judge.data.settings import Mix

app = typer.Typer(help="Download, check, mix and inspect problems.", no_args_is_help=True, rich_markup_mode=None)

Settings = Annotated[
    Path | None, typer.Option("--config", dir_okay=False, help="Dataset settings (default: config/dataset.yaml).")
]
Datasets = Annotated[
    list[str] | None,
    typer.Option("--datasets", metavar="NAME,...", help="Dataset names (default: mix.datasets of the settings)."),
]
From = Annotated[Path, typer.Option("--raw", metavar="DIR", help="Folder of raw files.")]
Fields = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="YAML", help="Paths of fields, such as {problem: prompt.0.content, answer: gold}."
    ),
]
Domains = Annotated[
    str | None, typer.Option("--domains", metavar="YAML", help="Your own domains, such as {legal: {answer: text}}.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the prepared data.")]

_RAW = Path("data/raw")
_OUT = Path("data")
_SHOWN = 20  # faults per report


def _mix(path: Path | None, datasets: list[str] | None, **changes: Any) -> "Mix":
    from llm_as_judge.data.settings import load_settings

    if datasets is not None:
        changes["datasets"] = [name for name in cli.split_names(datasets) if name != "none"]
    return load_settings(path, changes)


@app.command()
def process(
    config: Settings = None,
    raw: From = _RAW,
    out: Out = _OUT,
    split: Annotated[
        str, typer.Option(metavar="plan-c|official", help="Own 5:1 split by question, or the published splits.")
    ] = "plan-c",
    datasets: Datasets = None,
    custom: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Your own problems: a file or hub:owner/name (repeatable)."),
    ] = None,
    fields: Fields = None,
    domains: Domains = None,
    train_size: Annotated[int | None, typer.Option(metavar="N", help="Lines in the training mix.")] = None,
    test_size: Annotated[int | None, typer.Option(metavar="N", help="Lines in the test mix.")] = None,
    ratios: Annotated[
        str | None, typer.Option(metavar="MATH:QA:CODE", help="Domain shares, e.g. 4:3:3 or {math: 1, legal: 2}.")
    ] = None,
    val_fraction: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the training part held out for validation.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of split and mix.")] = None,
    any_split: Annotated[
        bool, typer.Option("--any-split", help="Use other splits if the configured ones have no files.")
    ] = False,
    as_json: cli.AsJson = False,
) -> None:
    """Split and mix raw files."""
    from llm_as_judge.data.process import Job
    from llm_as_judge.data.process import process as run
    from llm_as_judge.data.settings import sources_of, splits_there

    say = partial(cli.show, cli.make_console(as_json))
    if custom and datasets is None:
        sources = sources_of(_mix(config, None).datasets)
        if not any(splits_there(raw, name, source) for name, source in sources.items()):
            datasets = ["none"]
            say(f"no benchmark is in {raw}: using only your own problems")
    changes = {"train_size": train_size, "test_size": test_size, "val_fraction": val_fraction, "seed": seed}
    mix = _mix(config, datasets, domain_ratios=_ratios(ratios), **changes)
    job = Job(mix, raw, out, split, tuple(custom or ()), _own(fields, domains), any_split, say)  # type: ignore[arg-type]
    info = run(job)
    if as_json:
        cli.print_json(info)
        return
    for note in info["notes"]:
        say(f"note: {note}")
    say("written: " + ", ".join(str(out / folder) for folder in ("mixed", "test", "processed")))


def _own(fields: str | None, domains: str | None) -> "DataConfig":
    from llm_as_judge.config.loading import load_config

    given = {"data.fields": fields, "data.domains": domains}
    return load_config(None, [f"{name}={text}" for name, text in given.items() if text]).data


def _ratios(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    import yaml

    try:
        if text.startswith("{"):
            return {str(name): float(share) for name, share in yaml.safe_load(text).items()}
        math, qa, code = (float(part) for part in text.split(":"))
    except (ValueError, TypeError, yaml.YAMLError):
        cure = "give three numbers, math:qa:code, such as 4:3:3, or a share for each name: {math: 1, legal: 2}"
        raise ConfigError(f"--ratios {text!r}: {cure}") from None
    return {"math": math, "qa": qa, "code": code}


@app.command()
def check(
    config: Settings = None,
    raw: From = _RAW,
    datasets: Datasets = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Your own file or folder instead of benchmarks (repeatable)."),
    ] = None,
    fields: Fields = None,
    domains: Domains = None,
    as_json: cli.AsJson = False,
) -> None:
    """Judge every problem's own answer; exits with 1 if one is rejected."""
    from llm_as_judge.assembly.check import GoldReport, check_golds
    from llm_as_judge.config.schema import SandboxConfig
    from llm_as_judge.data.catalog import DATASETS
    from llm_as_judge.data.settings import raw_files, sources_of, splits_there
    from llm_as_judge.sandbox.host import Sandbox

    mix = _mix(config, datasets)
    files = {str(path): [path] for path in file or ()}
    if datasets or not file:
        sources = sources_of(mix.datasets if datasets else list(DATASETS))
        for name, source in sources.items():
            splits = splits_there(raw, name, source)
            files[name] = [path for split in splits for path in raw_files(raw, name, source, split)]
        if not any(files.values()):
            cure = "get them with llm-as-judge data download, or name their folder with --raw"
            raise DataError(f"{raw}: no files of {', '.join(sources)}; {cure}")
    console = cli.make_console(as_json)

    async def run() -> dict[str, GoldReport]:
        reports = {}
        async with Sandbox(SandboxConfig(cpu_seconds=10)) as sandbox:
            for name, paths in files.items():
                if not paths:
                    cli.show(console, f"{name}: no files")
                    continue
                report = reports[name] = await check_golds(paths, DATASETS.get(name), sandbox, _own(fields, domains))
                faults = [f"  {failure.id}: {failure.reason}" for failure in report.failures]
                if len(faults) > _SHOWN:
                    faults[_SHOWN:] = [f"  ... and {len(faults) - _SHOWN} more (--json shows all)"]
                judged = f"{report.golds} answers of {report.records} records, {len(report.failures)} faults"
                cli.show(console, f"{name}: {judged}", *faults)
        return reports

    reports = cli.run(run())
    if as_json:
        cli.print_json(reports)
    if any(report.failures for report in reports.values()):
        raise typer.Exit(1)


@app.command()
def download(config: Settings = None, raw: From = _RAW, datasets: Datasets = None, as_json: cli.AsJson = False) -> None:
    """Download raw files from the Hugging Face hub; resumes an interrupted download."""
    from llm_as_judge.data.download import download as run
    from llm_as_judge.views.terminal import TerminalProgress

    mix = _mix(config, datasets)
    with TerminalProgress(cli.make_console(as_json)) as bars:
        manifest = run(raw, mix.datasets, progress=bars.advance)
    if as_json:
        cli.print_json(manifest)


@app.command()
def inspect(
    out: Out = _OUT,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own file or folder instead of processed data.")
    ] = None,
    fields: Fields = None,
    domains: Domains = None,
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Examples per dataset.")] = 3,
    as_json: cli.AsJson = False,
) -> None:
    """Show counts, lengths and examples of problems."""
    from llm_as_judge.data.overview import inspect_file, inspect_folder

    own = {file.name: inspect_file(file, examples, _own(fields, domains))} if file else {}
    result = {"sides": own} if own else inspect_folder(out, examples)
    if as_json:
        cli.print_json(result)
        return

    from rich.table import Table
    from rich.text import Text

    console = cli.make_console(False)
    say = partial(cli.show, console)
    for side, sets in result["sides"].items():
        table = Table("dataset", "domain", "lines", "unique", "each", "median", "95 %", "longest", title=Text(side))
        for name, facts in sets.items():
            numbers = (facts["lines"], facts["unique"], facts["repetition"], *facts["length"].values())
            table.add_row(Text(name), facts["domain"], *(f"{number:,}" for number in numbers))
        console.print(table)
        for example in (example for facts in sets.values() for example in facts["examples"]):
            say("".join(f"  {field}: {text}\n" for field, text in example.items()))
    for note in result.get("notes", []):
        say(f"note: {note}")
