"""``llm-as-judge view``: a run's rollouts in Inspect's viewer."""

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
)


def view(
    run: RunName = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 = any that is free.")
    ] = 7575,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write the Inspect logs, and end.")] = False,
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Open a browser; by default from a terminal.")
    ] = None,
    every: Every = 2.0,
) -> None:
    """Browse rollouts: operator calls, prompts, replies, verdicts, rewards. Follows the run until Ctrl-C."""
    settings = load_settings(config, overrides, model, None)

    import sys
    import time
    import webbrowser

    from llm_as_judge.commands.view_run import inspect_logs, inspect_server

    logs = inspect_logs(settings, run)
    written = len(logs.update())
    if write_only:
        typer.echo(f"{written} new Inspect logs in {logs.folder}")
        return
    with inspect_server(logs.folder, port) as address:
        typer.echo(f"{logs.path} at {address}; Ctrl-C stops it")
        if sys.stdout.isatty() if browser is None else browser:
            webbrowser.open(address)
        try:
            while True:
                time.sleep(every)
                logs.update()
        except KeyboardInterrupt:
            return
