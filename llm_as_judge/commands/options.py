"""What several commands share: option types, reading what the user names, printing of results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from llm_as_judge.config.schema import Config
    from llm_as_judge.types import Question


class Interrupted(Exception):
    """Ctrl-C or SIGTERM in a command that ``--resume`` can go on with, if ``resumable``."""

    def __init__(self, resumable: bool) -> None:
        super().__init__()
        self.resumable = resumable


DEFAULT_CONFIG = Path("config/embedded.yaml")
PIPE_WIDTH = 120  # columns where the output is no terminal: tables and step lines stay whole

ConfigPath = Annotated[Path, typer.Option("--config", metavar="FILE", help="YAML file of settings.")]
ModelName = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Key of models.yaml, Hugging Face id or folder.")
]
Device = Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        exists=True,
        file_okay=False,
        metavar="DIR",
        help="Folder of a saved adapter; by default the run's newest.",
    ),
]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Its name, MODEL/NAME or its log; by default the newest.")
]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Seconds between looks.")]
Untrained = Annotated[bool, typer.Option("--untrained", help="Use the policy without an adapter.")]
PICTURES = (".png", ".svg", ".pdf")


def picture(path: Path | None) -> Path | None:
    """Refuses a name that tells no kind of picture, before the work is done that it is to show."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"{path} names no kind of picture; let it end in {', '.join(PICTURES)}")
    return path


def names_in(given: Sequence[str] | None) -> list[str]:
    """The names in the values of an option, which separate them by commas or spaces; each once."""
    return list(dict.fromkeys(name for value in given or () for name in value.replace(",", " ").split()))


DomainName = Annotated[str, typer.Option("--domain", metavar="DOMAIN", help="math, code or qa.")]


def load_settings(
    config: Path, overrides: list[str] | None, model: str | None, device: str | None, **flags: Any
) -> Config:
    """The configuration that a command's options mean; ``flags`` are typed values by a setting's bare name."""
    from llm_as_judge.config.loading import load_config

    return load_config(config, overrides or [], extra={"model.model_name": model, "model.device": device, **flags})


def followed() -> bool:
    """Whether a launcher has started this process as another than rank 0; then its part is done by now."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or int(os.environ.get("RANK", "0")) == 0:
        return False
    from llm_as_judge.assembly.follow import follow

    follow()
    return True


def make_console(as_json: bool) -> Console:
    """Progress goes to standard error where standard output belongs to JSON."""
    from rich.console import Console

    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    return console


def choose_checkpoint(settings: Config, checkpoint: Path | None, untrained: bool) -> Path | None:
    """The adapter to use; None for none. Raises ``ConfigError`` where both options are given, or a folder has none."""
    from llm_as_judge.errors import ConfigError

    if untrained and checkpoint:
        raise ConfigError("--untrained and --checkpoint exclude each other; give one of them")
    if checkpoint and not (checkpoint / "adapter_config.json").is_file():
        inside = sorted(path.parent for path in checkpoint.glob("**/adapter_config.json"))
        hint = f"; give one of those in it, such as {inside[-1]}" if inside else ""
        raise ConfigError(f"--checkpoint {checkpoint}: no adapter_config.json in it{hint}")

    from llm_as_judge.assembly.policy import newest_checkpoint

    return None if untrained else checkpoint or newest_checkpoint(settings)


def policy_name(checkpoint: Path | None) -> str:
    return f"policy with the adapter {checkpoint}" if checkpoint else "policy without an adapter (untrained)"


def print_json(data: Any) -> None:
    """Set out for a reader; in one line for a program, which may then take the last line of a log."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(data, indent=indent, ensure_ascii=False, default=str) + "\n")


def print_result(result: Mapping[str, Any], as_json: bool, console: Console) -> None:
    """A command's result: JSON, or a table of its values with nested ones set out below their name."""
    if as_json:
        print_json(result)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _flat(result):
        table.add_row(Text(name, style="bold"), Text(value))
    console.print(table)


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows


def make_question(text: str, domain: str, entry_point: str | None = None) -> Question:
    """A question typed by the user; raises ConfigError for a domain there is not."""
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.types import DOMAINS, Question

    if domain not in DOMAINS:
        raise ConfigError(f"--domain {domain!r}: there are {', '.join(DOMAINS)}")
    if not text.strip():
        raise ConfigError("the problem is empty; give its text or --file FILE")
    return Question(id="cli", text=text, domain=domain, entry_point=entry_point)
