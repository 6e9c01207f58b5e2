"""``llm-as-judge serve``: policy, workflow and executor as one model behind an OpenAI-compatible endpoint."""

import os
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError


@cli.grouped
def serve(
    options: cli.ConfigOptions,
    adapter: cli.AdapterOptions,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 8010,
    domain: cli.DomainName = "math",
    fallback: cli.Fallback = False,
    max_requests: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of problems in progress.")] = 64,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="LLM_AS_JUDGE_API_KEY", help="API key that clients must send."),
    ] = None,
) -> None:
    """Serve the policy as a chat model until interrupted."""
    if api_key is None and os.environ.get("LLM_AS_JUDGE_API_KEY") == "":
        raise ConfigError("LLM_AS_JUDGE_API_KEY is empty, so that no key would be asked for; set it, or unset it")
    settings = options.load(repairs=adapter.repairs)
    settings.data.like(domain)
    checkpoint = adapter.choose(settings)

    from llm_as_judge.commands.serve_endpoint import Endpoint, run_server
    from llm_as_judge.solver import Solver

    def ready(address: str) -> None:
        cli.echo(cli.policy_name(checkpoint, settings))
        cli.echo(f"{settings.base_model.key} is served at {address}; Ctrl-C stops it")
        if api_key is None and host not in ("127.0.0.1", "localhost", "::1"):
            cli.echo("warning: other machines may ask without a key; set one with --api-key", err=True)

    solver = Solver(config=settings, checkpoint=checkpoint, untrained=checkpoint is None)
    endpoint = Endpoint(solver, domain=domain, fallback=fallback, max_requests=max_requests, api_key=api_key)
    cli.run(run_server(endpoint, host, port, ready))
