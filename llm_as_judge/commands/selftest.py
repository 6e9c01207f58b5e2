"""``llm-as-judge selftest``: runs on a GPU everything that otherwise only a CPU has run, and writes a report.

Parts: the checks of ``doctor``, the tests marked ``gpu``, an update and an evaluation at the shape of Qwen2.5-7B with
random weights, the benchmarks against TRL and ``generate``, and five steps of the embedded run, stopped and resumed.
Nothing is downloaded. With ``--device cpu`` the nano policy takes the large model's place. A checkout is needed.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands import cli
from llm_as_judge.commands.doctor import Check, checks_of, run_check, show_checks
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import write_json

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config

#: Seconds after which a part is ended.
LIMIT_S = 900
STEPS = 5
_ROOT = Path(__file__).parents[2]
_LIBRARIES = ("torch", "triton", "transformers", "peft", "accelerate", "trl", "vllm")


class PartFailed(ConfigError):
    """A part of the self-test that failed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What all parts share. ``folder`` takes each part's output as ``PART.log``."""

    device: str
    config: Config
    folder: Path

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def run(self, part: str, *words: object, **variables: str) -> str:
        """Standard output of this Python with ``words``. Raises ``PartFailed`` with its last line of errors."""
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "HF_HUB_OFFLINE": "1", **variables}
        log = self.folder / f"{part}.log"
        with log.open("a", encoding="utf-8") as file:
            try:
                done = subprocess.run(
                    [sys.executable, *map(str, words)], check=False, stdout=subprocess.PIPE, stderr=file, text=True,
                    cwd=_ROOT, env=environment, timeout=LIMIT_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise PartFailed(f"not finished within {LIMIT_S} s; see {log}") from error
            file.write(done.stdout)
        if done.returncode:
            lines = log.read_text("utf-8", errors="replace").strip().splitlines() or ["no output"]
            raise PartFailed(f"exit status {done.returncode}: {lines[-1].strip()[:300]}; see {log}")
        return done.stdout


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
    folder = settings.output.results_dir.resolve() / "gpu" / platform.node()
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    machine = Machine(device, settings, folder)
    parts = parts_of(machine, checks)
    if unknown := [name for name in part or () if name not in parts]:
        raise ConfigError(f"--part {unknown[0]}: unknown; the parts are {', '.join(parts)}")
    results, console = [], cli.make_console(True)
    for name in part or parts:
        cli.show(console, f"{name}: running")
        begun = time.monotonic()
        result = run_check(name, parts[name])
        results.append(Check(name, result.ok, f"{time.monotonic() - begun:.0f} s: {result.detail}"))
    report = {"host": platform.node(), "device": device, "versions": versions(), "ok": all(r.ok for r in results)}
    report["parts"] = [asdict(result) for result in results]
    as_data, as_table = (folder.with_name(f"{folder.name}.{kind}") for kind in ("json", "md"))
    write_json(as_data, report)
    as_table.write_text(as_markdown(report, results), encoding="utf-8")
    if as_json:
        cli.print_json(report)
    else:
        show_checks(results)
    cli.show(console, f"report: {as_table} and {as_data}, output of each part in {folder}")
    if not report["ok"]:
        cli.show(console, "Report a failure with these files at the project's issues.")
        raise typer.Exit(1)


def parts_of(machine: Machine, checks: Mapping[str, Callable[[], str]]) -> dict[str, Callable[[], str]]:
    """Each part returns its figures, and raises if it fails."""
    parts: dict[str, Callable[[], str]] = {
        "doctor": partial(_doctor, machine, checks),
        "tests": partial(_tests, machine),
        "model": partial(_benchmark, machine, "model", "gpu.py"),
    }
    if machine.on_gpu:
        parts["update"] = partial(_benchmark, machine, "update", "update.py", "--row", "reference", "--rounds", "1")
        parts["sampling"] = partial(_benchmark, machine, "sampling", "rollout.py", "--rounds", "1")
    parts["train"] = partial(_trained, machine, "train", "local")
    if machine.config.engine.python:
        parts["vllm"] = partial(_trained, machine, "vllm", "vllm")
    return parts


def _doctor(machine: Machine, checks: Mapping[str, Callable[[], str]]) -> str:
    results = [run_check(name, check) for name, check in checks.items()]
    lines = [f"{result.name}: {result.detail}" for result in results]
    (machine.folder / "doctor.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if failed := [line for result, line in zip(results, lines, strict=True) if not result.ok]:
        raise PartFailed("; ".join(failed))
    return "; ".join(result.detail for result in results if result.name in ("gpu", "torch", "machine"))


def _tests(machine: Machine) -> str:
    words = ["-m", "pytest", "-q", "-m", "gpu", "--device", machine.device, "-p", "no:cacheprovider"]
    if not machine.on_gpu:  # make test runs these on a CPU
        words += ["--deselect", "tests/rl/test_ranks.py"]
    printed = machine.run("tests", *words, "tests/policy", "tests/rl", VLLM_PYTHON=_vllm_python(machine))
    return printed.strip().splitlines()[-1]


def _vllm_python(machine: Machine) -> str:
    python = machine.config.engine.python
    return str(Path(python).absolute()) if os.sep in python else python


def _benchmark(machine: Machine, part: str, file: str, *words: str) -> str:
    """Figures of a benchmark. Raises ``PartFailed`` if the memory exceeds the plan."""
    if file == "update.py" and util.find_spec("trl") is None:
        return "not run: trl is not installed; make peers"
    printed = machine.run(part, _ROOT / "benchmarks" / file, "--device", machine.device, "--json", *words)
    found = json.loads(printed.splitlines()[-1])
    claims = found["claims"]
    lines = [f"{name} {text}" for name, text in found["rows"].items()]
    lines += [f"{name} {claim['value']:g}" for name, claim in claims.items()]
    if over := [name for name, claim in claims.items() if part == "model" and not claim["met"]]:
        raise PartFailed(f"{', '.join(over)}: more than planned; {'; '.join(lines)}")
    return "; ".join(lines)


def _trained(machine: Machine, part: str, engine: str) -> str:
    """Five steps of the embedded run in a temporary folder, stopped after two and resumed."""
    from llm_as_judge.runlog import LogReader

    with tempfile.TemporaryDirectory() as temporary, socket.socket() as free:
        folder = Path(temporary)
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        free.close()
        size = "4" if machine.on_gpu else "2"
        settings = {
            "executor.base_url": address, "judge.base_url": address, "output_dir": folder / "checkpoints",
            "log_dir": folder / "logs", "results_dir": folder / "results", "persistence_dir": folder / "buffer",
            "rollout_batch_size": size, "num_return_sequences_in_group": size, "eval_problems": size,
            "max_problems": 40, "save_every": 1, "plan_matrix": "false", "baselines": "false",
            "generation.engine": engine, **({"engine.python": _vllm_python(machine)} if engine == "vllm" else {}),
        }  # fmt: skip
        words = ["-m", "llm_as_judge", "train", "--config", str(_ROOT / "config/embedded.yaml"), "--device"]
        words += [machine.device, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]
        machine.run(part, *words, "--max-steps", "2")
        machine.run(part, *words, "--max-steps", str(STEPS), "--resume")
        steps = LogReader.read(folder / "logs/nano/grpo_mixed.jsonl").steps
    if (numbers := [step.step for step in steps]) != list(range(1, STEPS + 1)):
        raise PartFailed(f"the log of the resumed run has the steps {numbers}")
    generate, update = (sum(step.seconds.get(name, 0.0) for step in steps) for name in ("generate", "update"))
    return (
        f"{STEPS} steps, stopped and resumed; generate {generate:.1f} s, update {update:.1f} s; "
        f"valid {100 * steps[-1].valid_rate:.0f} %"
    )


def versions() -> dict[str, str]:
    """Versions of this package's Python and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def as_markdown(report: Mapping[str, Any], results: list[Check]) -> str:
    rows = [f"| {r.name} | {'pass' if r.ok else 'fail'} | {r.detail.replace('|', '/')} |" for r in results]
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    title = f"# Self-test on {report['device']}, {report['host']}"
    return "\n".join([title, "", named, "", "| part | result | figures |", "|---|---|---|", *rows]) + "\n"
