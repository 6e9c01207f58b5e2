"""``llm-as-judge selftest``: runs on a GPU what has otherwise only run on CPUs, and writes a report.

Parts: the checks of ``doctor``, the tests marked ``gpu``, an update and an evaluation at the shape of Qwen2.5-7B with
random weights, the benchmarks against TRL and ``generate``, and five steps of the embedded run, stopped and resumed.
Nothing is downloaded. With ``--device cpu`` the nano policy replaces the large model. Needs a checkout.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands import cli
from llm_as_judge.commands.doctor import Check, checks_of, run_check, show_checks
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import write_json

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config

#: Seconds after which a command is ended.
LIMIT_S = 900
_ROOT = Path(__file__).parents[2]
_VERSIONS = ("python", "torch", "triton", "transformers", "peft", "accelerate", "trl", "vllm")


@cli.grouped
def selftest(
    options: cli.ConfigOptions,
    part: Annotated[
        list[str] | None, typer.Option("--part", metavar="NAME", help="Part to run (default: all); repeatable.")
    ] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Test this machine's GPU, or with --device cpu the same parts on the CPU."""
    device = options.device or "cuda:0"
    settings = options.load(**{"model.device": device})
    checks = checks_of(settings)
    if not (found := run_check("torch", checks["torch"])).ok:
        raise ConfigError(f"--device {device}: {found.detail}; --device cpu tests what runs there")
    if not (_ROOT / "benchmarks").is_dir():
        raise ConfigError(f"{_ROOT} holds no tests and benchmarks; run the self-test in a checkout (git clone)")
    with tempfile.TemporaryDirectory() as temporary:
        commands = commands_of(device, settings, Path(temporary))
        if unknown := [name for name in part or () if name not in ("doctor", *commands)]:
            raise ConfigError(f"--part {unknown[0]}: unknown; the parts are doctor, {', '.join(commands)}")
        folder = settings.output.results_dir.resolve() / "gpu" / platform.node()
        folder.mkdir(parents=True, exist_ok=True)
        results, console = list[Check](), cli.make_console(True)
        for name in part or ("doctor", *commands):
            cli.show(console, f"{name}: running")
            if name == "doctor":
                results += [run_check(f"doctor: {one}", check) for one, check in checks.items()]
            else:
                results.append(run_check(name, partial(_run, commands[name], folder / f"{name}.log", settings)))
    installed = {**{one.name: one.version for one in metadata.distributions()}, "python": platform.python_version()}
    versions = {name: installed[name] for name in _VERSIONS if name in installed}
    report: dict[str, Any] = {"host": platform.node(), "device": device, "versions": versions}
    report |= {"ok": all(result.ok for result in results), "parts": results}
    as_data, as_table = (folder.with_name(f"{folder.name}.{kind}") for kind in ("json", "md"))
    write_json(as_data, report)
    as_table.write_text(as_markdown(report), encoding="utf-8")
    if as_json:
        cli.print_json(report)
    else:
        show_checks(results)
    cli.show(console, f"report: {as_table} and {as_data}, output of each part in {folder}")
    if not report["ok"]:
        cli.show(console, "Report a failure with these files at the project's issues.")
        raise typer.Exit(1)


def commands_of(device: str, config: "Config", folder: Path) -> dict[str, list[list[str]]]:
    """List the arguments of Python for each part, one command after the other; runs write to ``folder``."""
    on_gpu, python = device.startswith("cuda"), config.engine.python
    tests = ["-m", "pytest", "-q", "-m", "gpu", "--device", device, "-p", "no:cacheprovider", "tests/policy"]
    parts = {
        "tests": [[*tests, *(["tests/rl"] if on_gpu else [])]],  # make test runs those of rl on a CPU
        "model": [["benchmarks/gpu.py", "--device", device, "--strict"]],
    }
    if on_gpu:
        measured = ["--device", device, "--rounds", "1"]
        parts["update"] = [["benchmarks/update.py", *measured, "--row", "reference"]]
        parts["sampling"] = [["benchmarks/rollout.py", *measured]]
    size = 4 if on_gpu else 2
    for name, engine in (("train", "local"), *([("vllm", "vllm")] if python else [])):
        settings = {
            "output_dir": folder / name / "checkpoints",
            "log_dir": folder / name / "logs", "results_dir": folder / name / "results", "eval_problems": size,
            "persistence_dir": folder / name / "buffer", "rollout_batch_size": size, "max_problems": 40,
            "num_return_sequences_in_group": size, "baselines": "none",
            "generation.engine": engine, **({"engine.python": _absolute(python)} if python else {}),
        }  # fmt: skip
        train = ["-m", "llm_as_judge", "train", "--config", "config/embedded.yaml", "--device", device]
        train += [word for setting, value in settings.items() for word in ("--set", f"{setting}={value}")]
        parts[name] = [[*train, "--max-steps", "2"], [*train, "--max-steps", "5", "--resume"]]
    return parts


def _run(commands: Sequence[Sequence[str]], log: Path, config: "Config") -> str:
    """Run a command; returns seconds and the last lines of output. Raises ``ConfigError`` if it fails."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_PYTHON": _absolute(config.engine.python)}
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        for words in commands:
            command = [sys.executable, *words]
            done = subprocess.run(
                command, check=False, stdout=file, stderr=file, cwd=_ROOT, env={**os.environ, **own}, timeout=LIMIT_S
            )
            if done.returncode:
                break
    lines = log.read_text("utf-8", errors="replace").strip().splitlines() or ["no output"]
    if done.returncode:
        raise ConfigError(f"exit status {done.returncode}: {lines[-1].strip()[:300]}; see {log}")
    return f"{time.monotonic() - begun:.0f} s: {'; '.join(' '.join(line.split()) for line in lines[-8:])}"


def _absolute(python: str) -> str:
    return str(Path(python).absolute()) if os.sep in python else python


def as_markdown(report: dict[str, Any]) -> str:
    from llm_as_judge.views.terminal import markdown

    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    rows = [(part.name, "pass" if part.ok else "fail", part.detail) for part in report["parts"]]
    title = f"# Self-test on {report['device']}, {report['host']}"
    return f"{title}\n\n{named}\n\n{markdown(('part', 'result', 'figures'), rows)}\n"
