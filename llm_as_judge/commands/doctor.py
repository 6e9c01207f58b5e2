"""``llm-as-judge doctor``: checks whether this machine is ready for a configuration; each failure names the cure.

It leaves nothing behind, except the log of an embedded server that fails.
"""

import contextlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, LLMAsJudgeError, SandboxFault, refusing

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config

_ROOM = 1 << 22  # bytes that an output folder must take


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


@cli.grouped
def doctor(
    options: cli.ConfigOptions,
    policy: Annotated[bool, typer.Option("--policy", help="Also load the policy and lint what it writes.")] = False,
    as_json: cli.AsJson = False,
) -> None:
    """Check this machine, the models and the endpoints."""
    settings = options.load()
    wanted = checks_of(settings)
    if policy:
        wanted["policy"] = partial(_policy, settings)
    checks = [run_check(name, check) for name, check in wanted.items()]
    if as_json:
        cli.print_json({"ok": all(check.ok for check in checks), "checks": checks})
    else:
        show_checks(checks)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def checks_of(settings: "Config") -> dict[str, Callable[[], str]]:
    """List the checks; each returns what it found, and raises if that is not enough."""
    output = settings.output
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: f"{platform.python_version()} ({sys.executable})",
        "torch": partial(_torch, settings),
        **({"gpu": partial(_gpu, settings)} if settings.model.device not in ("cpu", "mps") else {}),
        "machine": _machine,
        "sandbox": partial(_sandbox, settings),
        "model": partial(_model, settings),
    }
    if not settings.data.generated:
        checks["data"] = partial(_data, settings)
    for role in settings.endpoints():
        checks[role] = partial(_endpoint, settings, role)
    if settings.generation.engine == "vllm":
        checks["engine"] = partial(_engine, settings)
    for folder in (output.output_dir, output.log_dir, output.results_dir):
        checks[f"folder {folder}"] = partial(_writable, folder)
    return checks


def run_check(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except (LLMAsJudgeError, OSError, ImportError, subprocess.SubprocessError) as error:
        return Check(name, False, cli.file_problem(error) or str(error) or type(error).__name__)


def show_checks(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        state = Text("ok", "green") if check.ok else Text("FAILED", "bold red")
        table.add_row(state, Text(check.name), Text(check.detail))
    cli.make_console(False).print(table)


def _printed(code: str, *words: str, python: str = sys.executable) -> str:
    """Run ``code`` in its own process, as a broken installation may crash; returns its output. Raises ``OSError``."""
    done = subprocess.run([python, "-c", code, *words], check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return done.stdout.strip()


def _torch(settings: "Config") -> str:
    found = _printed("import torch; print(torch.__version__, 'CUDA' if torch.cuda.is_available() else 'CPU only')")
    device = settings.model.device
    if device.startswith("cuda") and found.endswith("CPU only"):
        raise OSError(
            f"{found}, but model.device={device}: check nvidia-smi; a driver older than the CUDA of this torch needs "
            "another build: make setup TORCH_INDEX=... (listed on pytorch.org)"
        )
    return found


#: Prints what a GPU is and has free, and its GB; raises without the precision, and if FlexAttention does not compile.
_ON_GPU = """
import sys, torch
from torch.nn.attention.flex_attention import flex_attention
from llm_as_judge.policy.device import resolve_device, resolve_dtype
device = resolve_device(sys.argv[1])
if device.type == "cuda":
    resolve_dtype(sys.argv[2], device, 10**9)
    free, total = (size / 1e9 for size in torch.cuda.mem_get_info(device))
    name, capability = torch.cuda.get_device_name(device), ".".join(map(str, torch.cuda.get_device_capability(device)))
    x = torch.randn(1, 2, 128, 64, device=device, requires_grad=True)
    try:
        torch.compile(flex_attention)(x, x, x).sum().backward()
    except Exception as error:
        raise OSError(f"{error}; FlexAttention needs Triton, a C compiler and Python's headers".replace("\\n", " "))
    print(f"{name}, compute capability {capability}, CUDA {torch.version.cuda}, {free:.1f} of {total:.1f} GB free")
"""


def _gpu(settings: "Config") -> str:
    """Warn, and pass, if the card is too small by the figures of ``plan``."""
    from llm_as_judge.commands.plan import make_plan

    found = _printed(_ON_GPU, settings.model.device, settings.model.dtype)
    if not found:
        return "none, so that model.device=auto is the CPU"
    machine = f"9x{found.rpartition(' of ')[2].split()[0]}"  # other parts may have cards of their own
    with contextlib.suppress(ConfigError):  # of a model that plan does not know
        fits = make_plan(settings, [machine]).machines[machine].fits
        found += "" if fits == "yes" else f"; WARNING: plan says that this does not fit: {fits}"
    return found


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cores} cores, {memory:.1f} GiB memory"


def _sandbox(settings: "Config") -> str:
    from llm_as_judge.sandbox.host import Sandbox

    async def ask() -> str:
        async with Sandbox(settings.sandbox) as sandbox:
            result = await sandbox.run_code("def answer():\n    return 6 * 7\n", call="answer")
            if result.outcome != "finished" or result.value != 42:
                raise SandboxFault(f"a test run ended with {result.outcome} {result.error}")
            return str(sandbox.describe()).removeprefix("sandbox: ")

    return cli.run(ask())


def _model(settings: "Config") -> str:
    """Check the model: a folder must hold weights; a hub id must be in the cache or known to the hub."""
    from llm_as_judge.config.loading import locate_weights

    path, quantization = settings.base_model.path, settings.model.quantization
    if quantization != "none":
        from llm_as_judge.policy.quantized import loading_options

        loading_options(quantization, settings.model.device, "bfloat16")
    folder = Path(locate_weights(path))
    if not folder.is_absolute() and not folder.is_dir():
        from huggingface_hub import HfApi, try_to_load_from_cache

        cached = try_to_load_from_cache(path, "config.json")
        if isinstance(cached, str) and any(Path(cached).parent.glob("*.safetensors")):
            return f"{path}: in the cache, {Path(cached).parent}"
        what = f"{path}: neither a folder here nor in the cache of the Hugging Face hub, and the hub gives nothing"
        with refusing(ConfigError, what, "check the name, the network and HF_TOKEN, or give a folder with its weights"):
            HfApi().model_info(path, timeout=10)
        return f"{path}: to be downloaded from the Hugging Face hub"
    if folder.suffix != ".gguf" and not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{folder}: no *.safetensors in it; for the nano models run `make pretrain`")
    return str(folder)


def _data(settings: "Config") -> str:
    from llm_as_judge.assembly.problems import open_problems

    problems = open_problems(settings)
    return f"{settings.data.train_dataset}: readable; {len(problems.heldout)} held-out problems"


def _endpoint(settings: "Config", role: str) -> str:
    """Ask once by the client of training; the embedded server is started for it, local weights are loaded."""
    logs = Path(tempfile.gettempdir(), f"llm-as-judge-{secrets.token_hex(8)}")  # made by an embedded server
    settings = settings.model_copy(update={"output": settings.output.model_copy(update={"log_dir": logs})})
    from llm_as_judge.assembly.services import open_clients
    from llm_as_judge.config.schema import POLICY

    async def ask() -> str:
        async with open_clients(settings, [role]) as clients:
            endpoint = clients[role].config
            if endpoint.provider == "local":
                own = endpoint.model == POLICY
                return "the policy's base weights (see model)" if own else f"{endpoint.model}: answers in this process"
            return "; ".join([f"{endpoint.base_url}: {endpoint.model} answers", *clients[role].remarks])

    found = cli.run(ask())
    shutil.rmtree(logs, ignore_errors=True)
    return found


def _engine(settings: "Config") -> str:
    from llm_as_judge.policy.vllm import VLLMEngine

    engine = settings.engine
    if engine.base_url:
        model = settings.base_model.path
        VLLMEngine(engine.model_copy(update={"max_retries": 0}), model, Path(), None).check()
        return f"{engine.base_url}: {model} answers"
    try:
        found = _printed("import vllm; print(vllm.__version__)", python=engine.python or sys.executable)
    except OSError as error:
        raise ConfigError(
            f"no vLLM for the run's own server ({error}): install it in a separate environment and set engine.python "
            "(docs/training.md), or set engine.base_url"
        ) from error
    return f"own server, vLLM {found.split()[-1]}"


def _policy(settings: "Config") -> str:
    """Fail if so few workflows are valid that GRPO would have nothing to compare."""
    from llm_as_judge.assembly.policy import load_author, probe_policy
    from llm_as_judge.assembly.problems import open_problems
    from llm_as_judge.evaluation.written import NEEDS_WARM_UP

    written = probe_policy(load_author(settings), open_problems(settings, measured=False))
    if written.too_few:
        raise ConfigError(f"{written}; {NEEDS_WARM_UP}{written.reasons}")
    return f"{written}{written.reasons}"


def _writable(folder: Path) -> str:
    """Write to the folder, or to the one in which a run would create it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_ROOM))
    except OSError as error:  # names a random file, or none
        raise OSError(error.errno, error.strerror, str(folder)) from error
    return f"writable, {shutil.disk_usage(there).free / 1e9:.1f} GB free"
