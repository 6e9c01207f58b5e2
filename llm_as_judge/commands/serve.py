"""``llm-as-judge serve``: policy, workflow and executor as one model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Domain

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config


@dataclass(frozen=True, slots=True)
class ServeOptions:
    domain: Domain = "math"  # of requests without one
    repair: bool = False
    fallback: bool = False
    max_requests: int = 64  # problems in progress at once
    api_key: str | None = None  # that clients must send; None: none needed


@dataclass(frozen=True, slots=True)
class Serving:
    """Address of the endpoint and name of its model."""

    base_url: str
    model: str


async def run_server(
    config: Config,
    host: str,
    port: int,
    *,
    checkpoint: Path | None,
    options: ServeOptions,
    ready: Callable[[Serving], None] = lambda serving: None,
) -> None:
    """Serve until cancelled; ``ready`` is called once the port is open. Raises ``ConfigError`` if it cannot be."""
    import asyncio

    from aiohttp import web

    from llm_as_judge.commands.serve_endpoint import Endpoint
    from llm_as_judge.solver import Solver

    if options.api_key == "":
        raise ConfigError("--api-key is empty and would protect nothing; give a key, or leave the option out")
    model = config.base_model.key
    async with Solver(config=config, checkpoint=checkpoint, untrained=checkpoint is None) as solver:
        app = Endpoint(solver, model, options).application()
        # A client that disconnects cancels its workflow.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                raise ConfigError(
                    f"cannot serve at {host}:{port}: {error.strerror}; choose another address with --host and --port"
                ) from error
            ready(Serving(f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}/v1", model))
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


@cli.grouped
def serve(
    options: cli.ConfigOptions,
    adapter: cli.AdapterOptions,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: any free port.")
    ] = 8010,
    domain: cli.DomainName = "math",
    repair: cli.Repair = False,
    fallback: cli.Fallback = False,
    max_requests: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of problems in progress.")] = 64,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="LLM_AS_JUDGE_API_KEY", help="API key that clients must send.", show_envvar=True
        ),
    ] = None,
) -> None:
    """Serve the policy as a chat model until interrupted."""
    import asyncio

    chosen = ServeOptions(cli.check_domain(domain), repair, fallback, max_requests, api_key)
    settings = options.load()
    checkpoint = adapter.choose(settings)

    def ready(serving: Serving) -> None:
        cli.echo(cli.policy_name(checkpoint))
        cli.echo(f"{serving.model} is served at {serving.base_url}; Ctrl-C stops it")
        if chosen.api_key is None and host not in ("127.0.0.1", "localhost", "::1"):
            cli.echo("warning: other machines may ask without a key; set one with --api-key", err=True)

    asyncio.run(run_server(settings, host, port, checkpoint=checkpoint, options=chosen, ready=ready))
