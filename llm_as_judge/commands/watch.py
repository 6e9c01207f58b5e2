"""``llm-as-judge monitor``, ``analyze`` and ``report``: views of a run's log, also during the run."""

import time
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import write_whole


@cli.grouped
def monitor(
    options: cli.ConfigOptions,
    run: cli.RunName = None,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
) -> None:
    """Follow a run until its last step or Ctrl-C; without a terminal, show its current state once."""
    from rich.live import Live

    from llm_as_judge.runlog import LogReader, find_log
    from llm_as_judge.views.watch import look_at_log, look_panel

    console = cli.make_console(False)
    reader = LogReader(find_log(options.load(), run, newest=True), rollouts=False)
    look = look_at_log(reader)
    if once or look.done or not console.is_terminal:
        console.print(look_panel(look))
        return
    with Live(look_panel(look), console=console, auto_refresh=False) as live:
        while not look.done:
            time.sleep(cli.EVERY_S)
            look = look_at_log(reader)
            live.update(look_panel(look), refresh=True)


@cli.grouped
def analyze(
    options: cli.ConfigOptions,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run name, MODEL/NAME or log path (default: the configured run)."),
    ] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Sum up a run by domain, dataset, operator, shape, lint code and failure, and over time."""
    from llm_as_judge.evaluation.analysis import analyze_log
    from llm_as_judge.runlog import find_log
    from llm_as_judge.views.watch import analysis_tables

    log = find_log(options.load(), run)
    found = analyze_log(log)
    if not found.total.rollouts:
        raise ConfigError(f"{log}: no rollouts yet; follow the run with llm-as-judge monitor")
    if as_json:
        cli.print_json(found)
        return
    cli.make_console(as_json).print(*analysis_tables(found), sep="\n", highlight=False)


@cli.grouped
def report(options: cli.ConfigOptions, run: cli.RunName = None) -> None:
    """Write one HTML file, next to the log, with a run's curves, shapes, costs, best and worst rollouts."""
    from llm_as_judge.evaluation.analysis import read_story
    from llm_as_judge.runlog import find_log
    from llm_as_judge.views.report import report_page  # needs an extra

    config = options.load()
    log = find_log(config, run, newest=True)
    story = read_story(log, config.output.results_dir / "training" / log.parent.name / f"{log.stem}.json")
    if not story.log.steps:
        raise ConfigError(f"{log}: no finished step yet; follow the run with llm-as-judge monitor")
    file = log.with_suffix(".html")
    write_whole(file, report_page(story))
    cli.echo(f"report  {file}")
