"""``llm-as-judge embedded``: the nano executor as an OpenAI-compatible service."""

from typing import Annotated

import typer

app = typer.Typer(help="The nano models shipped with the package.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8002,
) -> None:
    """Serve the nano executor until interrupted."""
    from llm_as_judge.embedded import server

    server.serve(host, port, lambda address: typer.echo(f"{server.MODEL_NAME} is served at {address}; Ctrl-C stops it"))
