"""``llm-as-judge init``: a folder with a task of one's own, which ``train`` runs at once on the nano models."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError


def init(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write; new or empty.")]) -> None:
    """Write a task of your own to FOLDER: configuration, problems, judge and operators."""
    from llm_as_judge.config.sources import SHIPPED

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder; name another one")
    wheel, clone = SHIPPED / "own_verdict", SHIPPED.parent / "examples/own_verdict"
    template = wheel if wheel.is_dir() else clone
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(file for file in template.iterdir() if file.is_file()):
        shutil.copyfile(file, folder / file.name)
        cli.echo(f"written: {folder / file.name}")
    cli.echo(f"next: cd {shlex.quote(str(folder))} && llm-as-judge train --config config.yaml")
