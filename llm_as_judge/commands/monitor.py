"""``llm-as-judge monitor``: a live view of a running or finished run."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    ConfigPath,
    Every,
    ModelName,
    Overrides,
    RunName,
    load_settings,
    make_console,
)


def monitor(
    run: RunName = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    every: Every = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show how the run stands now, and end.")] = False,
) -> None:
    """Watch a run until its last step, or until Ctrl-C; without a terminal, show once how it stands."""
    settings = load_settings(config, overrides, model, None)

    import time

    from rich.live import Live

    from llm_as_judge.commands.watch_run import watch
    from llm_as_judge.views.watch import look_panel

    console, watched = make_console(False), watch(settings, run)
    look = watched.look()
    if once or look.done or not console.is_terminal:
        console.print(look_panel(look))
        return
    with Live(look_panel(look), console=console, auto_refresh=False) as live:
        while not look.done:
            time.sleep(every)
            look = watched.look()
            live.update(look_panel(look), refresh=True)
