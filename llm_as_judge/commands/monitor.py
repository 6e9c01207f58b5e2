"""``llm-as-judge monitor``: a live view of a running or finished run."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands import cli


@cli.grouped
def monitor(
    options: cli.SettingsOptions,
    run: cli.RunName = None,
    every: cli.Every = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
) -> None:
    """Follow a run until its last step or Ctrl-C; without a terminal, show its current state once."""
    settings = options.load()

    import time

    from rich.live import Live

    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.runlog import LogReader
    from llm_as_judge.views.watch import look_at_log, look_panel

    console, reader = cli.make_console(False), LogReader(find_log(settings, run, newest=True), rollouts=False)
    look = look_at_log(reader)
    if once or look.done or not console.is_terminal:
        console.print(look_panel(look))
        return
    with Live(look_panel(look), console=console, auto_refresh=False) as live:
        while not look.done:
            time.sleep(every)
            look = look_at_log(reader)
            live.update(look_panel(look), refresh=True)
