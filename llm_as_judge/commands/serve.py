"""``llm-as-judge serve``: policy, workflow and executor as one model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    Checkpoint,
    ConfigPath,
    Device,
    DomainName,
    ModelName,
    Overrides,
    Untrained,
    choose_checkpoint,
    load_settings,
    policy_name,
)


def serve(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    checkpoint: Checkpoint = None,
    untrained: Untrained = False,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 = any that is free.")
    ] = 8010,
    domain: DomainName = "math",
    repair: Annotated[
        bool, typer.Option("--repair", help="Initialise variables that a workflow may leave unbound.")
    ] = False,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Where a workflow fails, ask the executor directly.")
    ] = False,
    most: Annotated[
        int, typer.Option("--max-requests", metavar="N", min=1, help="Problems under way at once; more are refused.")
    ] = 64,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar="LLM_AS_JUDGE_API_KEY",
            help="Key that requests must bear.",
            show_envvar=True,
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Serve the policy as a chat model until interrupted."""
    import asyncio

    from llm_as_judge.errors import ConfigError
    from llm_as_judge.types import DOMAINS

    if domain not in DOMAINS:
        raise ConfigError(f"--domain {domain!r}: there are {', '.join(DOMAINS)}")
    settings = load_settings(config, overrides, model, device)
    checkpoint = choose_checkpoint(settings, checkpoint, untrained)

    from llm_as_judge.commands.serve_run import ServeOptions, Serving
    from llm_as_judge.commands.serve_run import serve as run

    def ready(serving: Serving) -> None:
        typer.echo(policy_name(checkpoint))
        typer.echo(f"{serving.model} is served at {serving.base_url}; Ctrl-C stops it")

    options = ServeOptions(domain, repair, fallback, most, api_key)
    asyncio.run(run(settings, host, port, checkpoint=checkpoint, options=options, ready=ready))
