"""``llm-as-judge trace``: a run's rollouts as OpenTelemetry spans."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands import cli


@cli.grouped
def trace(
    options: cli.SettingsOptions,
    run: cli.RunName = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="OTLP endpoint, such as http://localhost:6006/v1/traces.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue as the run grows, until Ctrl-C.")] = False,
    every: cli.Every = 2.0,
) -> None:
    """Send rollouts to Phoenix, Langfuse, Jaeger or another OpenTelemetry collector."""
    settings = options.load()

    import time

    from llm_as_judge.assembly.logs import find_log
    from llm_as_judge.runlog import FinishedStep, LogReader
    from llm_as_judge.views.spans import Spans

    reader, spans = LogReader(find_log(settings, run, newest=True)), Spans(endpoint)

    def send_new() -> int:
        return sum(spans.send(found) for found in reader.finished() if isinstance(found, FinishedStep))

    try:
        cli.echo(f"{send_new():,} rollouts sent")
        while follow:
            time.sleep(every)
            if sent := send_new():
                cli.echo(f"{sent:,} rollouts sent")
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        spans.close()
