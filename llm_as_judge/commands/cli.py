"""Options and output shared by several commands."""

import dataclasses
import errno
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from llm_as_judge.answers.code import is_name
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import json_text, read_json

if TYPE_CHECKING:
    from rich.console import Console

    from llm_as_judge.config.schema import Config


T = TypeVar("T")


class Interrupted(Exception):
    """Ctrl-C or SIGTERM in a command; ``resumable``: the command can continue with ``--resume``."""

    def __init__(self, resumable: bool) -> None:
        super().__init__()
        self.resumable = resumable


def function_name(value: str | None) -> str | None:
    """Return ``value`` if a function can have this name."""
    if value is not None and not is_name(value):
        raise typer.BadParameter(f"{value!r} is no name of a Python function.")
    return value


DEFAULT_CONFIG = Path("config/embedded.yaml")
#: Control characters, and marks that turn the direction of a line.
_CONTROLS = dict.fromkeys(
    (*range(9), *range(11, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
PIPE_WIDTH = 120  # columns where the output is not a terminal: tables and step lines are not wrapped
EVERY_S = 2.0  # seconds between looks at a run's log

ConfigPath = Annotated[Path, typer.Option("--config", metavar="FILE", help="YAML configuration file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Setting; repeatable.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, metavar="DIR", help="Folder of an adapter (default: the newest)."),
]
RunName = Annotated[str | None, typer.Argument(metavar="RUN", help="Run name, MODEL/NAME or log (default: latest).")]
DomainName = Annotated[
    str, typer.Option("--domain", metavar="DOMAIN", help="Domain of problems: math, code, qa or one of data.domains.")
]
EntryPoint = Annotated[
    str | None,
    typer.Option("--entry-point", metavar="NAME", callback=function_name, help="Function to write, for code problems."),
]
Fallback = Annotated[bool, typer.Option("--fallback", help="Ask the executor directly if a workflow fails.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Maximum number of problems per file.")]
Resume = Annotated[bool, typer.Option("--resume/--fresh", help="Continue an interrupted run, or start a new one.")]


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """The options that choose the configuration."""

    config: ConfigPath = DEFAULT_CONFIG
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Policy model: key of models.yaml, Hugging Face id or folder.")
    ] = None
    device: Annotated[str | None, typer.Option(metavar="DEVICE", help="Device: auto, cpu, cuda, cuda:N or mps.")] = None
    overrides: Overrides = None

    def load(self, **flags: Any) -> "Config":
        """Load the configuration; ``flags`` are typed values by a setting's bare or full name."""
        from llm_as_judge.config.loading import load_config

        own = {"model.model_name": self.model, "model.device": self.device}
        return load_config(self.config, self.overrides or [], extra={**own, **flags})


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """The options that choose the policy's adapter, and how often it repairs."""

    checkpoint: Checkpoint = None
    untrained: Annotated[bool, typer.Option("--untrained", help="Use the policy without an adapter.")] = False
    repairs: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Times that the policy may rewrite a failed workflow.")
    ] = None

    def choose(self, settings: "Config", *, needed: bool = False) -> Path | None:
        """Choose the adapter's folder, if any. Raises ``ConfigError`` for both options or a folder without one."""
        if self.untrained and self.checkpoint:
            raise ConfigError("--untrained and --checkpoint exclude each other; give one of them")
        if self.checkpoint and not (self.checkpoint / "adapter_config.json").is_file():
            inside = sorted(path.parent for path in self.checkpoint.glob("**/adapter_config.json"))
            hint = f"; give one of its subfolders, such as {inside[-1]}" if inside else ""
            raise ConfigError(f"--checkpoint {self.checkpoint}: no adapter_config.json in it{hint}")
        if self.untrained or self.checkpoint:
            return self.checkpoint
        from llm_as_judge.assembly.policy import newest_adapter  # torch: after what is refused without it

        return newest_adapter(settings, needed=needed)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` as typer reads it: a parameter of a dataclass type is replaced by the dataclass's fields."""
    parameters, groups = list[inspect.Parameter](), dict[str, tuple[type[Any], list[str]]]()
    hints, kind = get_type_hints(command, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    for name, parameter in inspect.signature(command).parameters.items():
        if isinstance(group := hints[name], type) and dataclasses.is_dataclass(group):
            own, fields = get_type_hints(group, include_extras=True), dataclasses.fields(group)
            parameters += [inspect.Parameter(f.name, kind, default=f.default, annotation=own[f.name]) for f in fields]
            groups[name] = group, list(own)
        else:
            parameters.append(parameter.replace(kind=kind, annotation=hints[name]))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, (group, fields) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields})
        command(**given)

    del run.__wrapped__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on an event loop of its own, and return its result."""
    import asyncio  # here: --help and lint start without it

    return asyncio.run(work)


def split_names(given: Sequence[str] | None) -> list[str]:
    """Split an option's values at commas or spaces into unique names."""
    return list(dict.fromkeys(name for value in given or () for name in value.replace(",", " ").split()))


def followed() -> bool:
    """Do this process's part if a launcher started it as another rank than 0; False on rank 0 and without launcher."""
    try:
        size, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    except ValueError as error:
        raise ConfigError(f"WORLD_SIZE or RANK is not a number ({error}); unset it, or start with torchrun") from error
    if size > 1 and "MASTER_ADDR" not in os.environ:
        raise ConfigError(f"WORLD_SIZE={size} without MASTER_ADDR; unset it, or start with torchrun")
    if size > 1 and rank > 0:
        from llm_as_judge.assembly.follow import follow

        follow()
        return True
    return False


#: How to write elsewhere, by command; for the others by settings.
_ELSEWHERE = {
    "export": "name another folder: llm-as-judge export DIR",
    "init": "name another folder: llm-as-judge init FOLDER",
    "report": "copy the log to another folder and name the copy: llm-as-judge report LOG",
    "data": "name another folder with --raw or --out",
}


def file_problem(error: BaseException, command: str = "") -> str | None:
    """Say what is wrong with a file or folder that ``command`` writes, and the cure; None for another error."""
    if not isinstance(error, OSError) or not (error.filename or error.errno == errno.ENOSPC):
        return None
    if not error.filename:
        return "standard output: no space left on device; make room there or print to another place"
    cure = _ELSEWHERE.get(command, "name another path: --set output_dir=DIR --set log_dir=DIR --set results_dir=DIR")
    place, reason = os.fsdecode(error.filename), os.strerror(error.errno or 0).lower()
    return f"{place}: {reason}; make room there, make it writable or {cure}"


def printable(text: str) -> str:
    """Return ``text`` without control characters other than tabs and line breaks."""
    return text.translate(_CONTROLS)


def echo(text: object, *, err: bool = False) -> None:
    """Print a line, on standard error if ``err``, without control characters, which a terminal would obey."""
    typer.echo(printable(str(text)), err=err)


def make_console(as_json: bool) -> "Console":
    """Make a console that prints no control characters of texts; on standard error if standard output is for JSON."""
    from rich.console import Console

    class PlainConsole(Console):
        def render(self, *given: Any, **named: Any) -> Any:
            for segment in super().render(*given, **named):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    console = PlainConsole(stderr=as_json, markup=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_WIDTH)
    return console


def show(console: "Console", *lines: object) -> None:
    """Print lines of plain text, each unwrapped and without markup."""
    for line in lines:
        console.print(str(line), highlight=False, soft_wrap=True)


def show_caveat(console: "Console", config: "Config") -> None:
    """Print what the embedded executor's answers to given problems are worth; nothing with another executor."""
    if config.executor.provider == "embedded":
        reason = "the nano models know only their own generated problems; their answers to others are worthless"
        show(console, f"caveat: {reason}. Use a real model: --config config/training.yaml")


def policy_name(checkpoint: Path | None, config: "Config") -> str:
    """Name the policy in use, and settings that give way to an adapter's own."""
    from llm_as_judge.policy.model import lora_shape

    if checkpoint is None:
        return f"policy untrained: no checkpoint of the run {config.base_model.key}/{config.output.run_name} is used"
    model = {k: sorted(v) if isinstance(v, tuple) else v for k, v in config.model}
    shape = lora_shape(read_json(checkpoint / "adapter_config.json")).items()
    own = ", ".join(f"{name}={value}" for name, value in shape if model[name] not in ("all-linear", value))
    return f"policy with the adapter {checkpoint}" + (f" and its own {own}, not the configured one" if own else "")


def print_json(data: Any) -> None:
    """Print JSON, indented on a terminal, else on one line, so that a program can read the last line of a log."""
    text = json_text(data, 2 if sys.stdout.isatty() else 0)
    if "utf" not in (sys.stdout.encoding or "utf-8").lower():
        text = "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)
    sys.stdout.write(text + "\n")


def flat(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted names and values of nested mappings."""
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", f"{value:.4g}" if isinstance(value, float) else str(value)


def print_result(result: Any, as_json: bool, text: str = "", ok: bool = True) -> None:
    """Print JSON, or ``text``; without it a line for each value of a mapping. The exit status is 1 unless ``ok``."""
    if as_json:
        print_json(result)
    elif text:
        echo(text)
    else:
        rows = list(flat(result))
        width = max(len(name) for name, _ in rows)
        echo("\n".join(f"{name:{width}}  {value}" for name, value in rows))
    if not ok:
        raise typer.Exit(1)
