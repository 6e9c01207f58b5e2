"""``llm-as-judge trace``: a run's rollouts as OpenTelemetry spans."""

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


def trace(
    run: RunName = None,
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="URL", help="Of OTLP over HTTP, such as http://localhost:6006/v1/traces."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as the run grows, until Ctrl-C.")] = False,
    every: Every = 2.0,
) -> None:
    """Send rollouts to Phoenix, Langfuse, Jaeger or another OpenTelemetry collector."""
    settings = load_settings(config, overrides, model, None)

    import time

    from llm_as_judge.commands.trace_run import trace as open_trace

    traced = open_trace(settings, run, endpoint)
    try:
        typer.echo(f"{traced.update():,} rollouts sent")
        while follow:
            time.sleep(every)
            if sent := traced.update():
                typer.echo(f"{sent:,} rollouts sent")
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        traced.spans.close()
