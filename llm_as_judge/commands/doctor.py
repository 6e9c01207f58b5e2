"""``llm-as-judge doctor``: is this machine ready for the configuration? Each check says what to do where not.

Changes nothing but the output folders, which it creates.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    Device,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    print_json,
)

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config, EndpointConfig


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


def doctor(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    device: Device = None,
    overrides: Overrides = None,
    policy: Annotated[
        bool, typer.Option("--policy", help="Load the policy too, and look at what it writes for a few problems.")
    ] = False,
    operators: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Run every hand-written workflow on N problems of each domain: are replies read?"
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Check Python, torch, the sandbox, the models, the endpoints and the output folders."""
    settings = load_settings(config, overrides, model, device)
    wanted = _checks(settings) | ({"policy": partial(_policy, settings)} if policy else {})
    if operators:
        wanted["operators"] = partial(_operators, settings, operators)
    checks = [_run(name, check) for name, check in wanted.items()]
    if as_json:
        print_json({"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]})
    else:
        _show(checks)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _checks(settings: Config) -> dict[str, Callable[[], str]]:
    """Every check returns what it found and raises where that will not do."""
    output = settings.output
    checks: dict[str, Callable[[], str]] = {
        "python": _python,
        "torch": partial(_torch, settings),
        "machine": _machine,
        "sandbox": partial(_sandbox, settings),
        "model": partial(_model, settings),
    }
    if settings.data.source == "files":
        checks["data"] = partial(_data, settings)
    for role, endpoint in settings.endpoints().items():
        checks[role] = partial(_endpoint, endpoint)
    if settings.generation.engine == "vllm":
        checks["engine"] = partial(_engine, settings)
    for folder in (output.output_dir, output.log_dir, output.results_dir):
        checks[f"folder {folder}"] = partial(_writable, folder)
    return checks


def _run(name: str, check: Callable[[], str]) -> Check:
    from llm_as_judge.errors import LLMAsJudgeError

    try:
        return Check(name, True, check())
    except (LLMAsJudgeError, OSError, ImportError, subprocess.SubprocessError) as error:
        return Check(name, False, str(error) or type(error).__name__)


def _show(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        state = Text("ok", "green") if check.ok else Text("FAILED", "bold red")
        table.add_row(state, Text(check.name), Text(check.detail))
    make_console(False).print(table)


def _python() -> str:
    return f"{platform.python_version()} ({sys.executable})"


def _torch(settings: Config) -> str:
    # In a process of its own: a broken install may crash, and this layer does not import torch.
    code = "import torch; print(torch.__version__, 'CUDA' if torch.cuda.is_available() else 'CPU only')"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise OSError(f"cannot be imported: {last}; run `make setup`")
    found, device = done.stdout.strip(), settings.model.device
    if device.startswith("cuda") and found.endswith("CPU only"):
        raise OSError(
            f"{found}, but model.device={device}: see nvidia-smi; a driver that is older than the CUDA of this torch "
            "needs another build: make setup TORCH_INDEX=... (pytorch.org lists them)"
        )
    return found


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores, {memory:.1f} GiB memory"


def _sandbox(settings: Config) -> str:
    import asyncio

    from llm_as_judge.errors import SandboxFault
    from llm_as_judge.sandbox.host import Sandbox
    from llm_as_judge.sandbox.results import CodeResult, Confinement

    async def ask() -> tuple[CodeResult, Confinement]:
        async with Sandbox(settings.sandbox) as sandbox:
            return await sandbox.run_code("def answer():\n    return 6 * 7\n", call="answer"), sandbox.describe()

    result, confinement = asyncio.run(ask())
    if result.outcome != "finished" or result.value != 42:
        raise SandboxFault(f"mode {confinement.mode}: a run gave {result.outcome} {result.error}")
    return str(confinement).removeprefix("sandbox: ")


def _model(settings: Config) -> str:
    """A folder must hold weights; a hub id is looked up only when training loads it."""
    from llm_as_judge.config.loading import locate_weights
    from llm_as_judge.errors import ConfigError

    entry = settings.base_model
    folder = Path(locate_weights(entry.path))
    if folder.suffix == ".gguf" and folder.is_file():
        return str(folder)
    if not folder.is_absolute() and not folder.is_dir():
        return f"{entry.path} (from the Hugging Face hub or its cache)"
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{folder}: no *.safetensors there; for the nano models run `make pretrain`")
    return str(folder)


def _data(settings: Config) -> str:
    """Reads what training reads."""
    from llm_as_judge.assembly.problems import open_problems

    problems = open_problems(settings)
    return f"{settings.data.train_dataset}: readable; {len(problems.heldout)} held-out problems"


def _endpoint(endpoint: EndpointConfig) -> str:
    """One real completion by the client that training uses, for the embedded model by its server started for it."""
    import asyncio
    from contextlib import AsyncExitStack

    from llm_as_judge.llm.client import LLMClient

    async def ask() -> list[str]:
        async with AsyncExitStack() as stack:
            if endpoint.provider == "embedded":
                from llm_as_judge.embedded.supervise import EmbeddedServer

                await stack.enter_async_context(EmbeddedServer(endpoint.base_url))
            client = LLMClient(endpoint.model_copy(update={"max_retries": 0}))
            return await (await stack.enter_async_context(client)).check()

    names = asyncio.run(ask())
    return f"{endpoint.base_url}: {endpoint.model} answers" + (f"; it serves {', '.join(names)}" if names else "")


def _engine(settings: Config) -> str:
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.policy.vllm import VLLMEngine

    if not settings.engine.base_url:
        python = settings.engine.python or sys.executable
        asked = [python, "-c", "import vllm; print(vllm.__version__)"]
        answer = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=120)
        if answer.returncode:
            reason = answer.stderr.strip().rpartition("\n")[2]
            cure = "install it in an environment of its own and give engine.python (docs/scale.md), or engine.base_url"
            raise ConfigError(f"{python} has no vLLM for the run's own server ({reason}): {cure}")
        return f"a server of the run's own, vLLM {answer.stdout.split()[-1]}"
    config, model = settings.engine.model_copy(update={"max_retries": 0}), settings.base_model.path
    names = VLLMEngine(config, model, Path(), None).check()
    return f"{config.base_url}: {model} answers; it serves {', '.join(names)}"


def _policy(settings: Config) -> str:
    """Fails where so few workflows are valid that GRPO would have nothing to compare."""
    from llm_as_judge.assembly.policy import load_author
    from llm_as_judge.assembly.probe import probe_policy
    from llm_as_judge.assembly.problems import open_problems
    from llm_as_judge.errors import ConfigError
    from llm_as_judge.evaluation.written import NEEDS_WARM_UP

    written = probe_policy(load_author(settings), open_problems(settings, measured=False))
    if written.too_few:
        raise ConfigError(f"{written}; {NEEDS_WARM_UP}{written.reasons}")
    return f"{written}{written.reasons}"


def _operators(settings: Config, problems: int) -> str:
    """Fails where no reply of some operator could be read."""
    import asyncio

    from llm_as_judge.commands.readable_run import probe_operators
    from llm_as_judge.errors import ConfigError

    found = asyncio.run(probe_operators(settings, problems))
    lines = "\n".join(f"  {one}" for one in found)
    if mute := [one.operator for one in found if not one.read]:
        raise ConfigError(f"{settings.executor.model} gives {', '.join(mute)} nothing that can be read\n{lines}")
    return f"{sum(one.read for one in found)} of {sum(one.calls for one in found)} calls read\n{lines}"


def _writable(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return "writable"
