"""The command line: quick to start, clear in its errors, clean in its JSON."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.cli import SINGLE_CALL, CommandLine
from helpers.finished import as_options
from helpers.processes import ROOT, program

from llm_as_judge.assembly.progress import Progress
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import LLMAsJudgeError, ProviderError


@pytest.fixture(autouse=True)
def _empty_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)
    Path("w.py").write_text(SINGLE_CALL, encoding="utf-8")


@dataclass
class Trainer:
    """Replaces the training run, which ``test_train`` covers: raises ``error``."""

    error: BaseException
    config: Config | None = None
    resume: bool | None = None
    saves: bool = False

    async def train(self, config: Config, *, resume: bool, progress: Progress) -> None:
        self.config, self.resume = config, resume
        if self.saves:
            Path("checkpoints/nano/a/step_3").mkdir(parents=True, exist_ok=True)
        raise self.error


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer(KeyboardInterrupt())
    monkeypatch.setattr("llm_as_judge.rl.checkpoint.verify", lambda path: None)
    monkeypatch.setattr("llm_as_judge.commands.train.run_training", made.train)
    return made


def python(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return program(sys.executable, *words, **environment)


# Start-up


def test_the_package_starts_without_torch_as_a_module_and_as_a_script() -> None:
    code = (
        "import sys; from llm_as_judge.commands.app import main; status = main(['--help'])\n"
        "slow = {'torch', 'transformers', 'peft', 'numpy', 'pydantic', 'yaml', 'aiohttp', 'openai', 'asyncio'}\n"
        "sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else status)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    for command in ("train", "evaluate", "solve", "workflow", "embedded", "data", "doctor"):
        assert command in done.stdout
    for words in (["-m", "llm_as_judge"], ["-m", "llm_as_judge.commands.app"]):
        done = python(*words, "--version")
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("llm-as-judge")
    script = Path(sys.executable).with_name("llm-as-judge")
    done = program(script, "train", "--config", "no.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no.yaml: no such file") and "Traceback" not in done.stderr


def test_dotenv_is_read_before_torch_is_loaded_and_does_not_replace_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("CUDA_VISIBLE_DEVICES=3\nWANDB_MODE=offline\nVLLM_BASE_URL=http://far:1/v1\n")
    code = (
        "import os, sys; from llm_as_judge.commands.app import main\n"
        "assert main(['workflow', 'lint', 'w.py']) == 0 and 'torch' not in sys.modules\n"
        "print(*map(os.environ.get, ('CUDA_VISIBLE_DEVICES', 'WANDB_MODE', 'VLLM_BASE_URL')))"
    )
    for name in ("CUDA_VISIBLE_DEVICES", "VLLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    done = python("-c", code, WANDB_MODE="online")
    assert done.stdout.splitlines()[-1] == "3 online http://far:1/v1", done.stderr


def test_odd_terminals_and_missing_docstrings_are_no_traceback() -> None:
    Path("ü.py").write_text(SINGLE_CALL.replace("Custom", "Ärger"), encoding="utf-8")
    lint = ["-m", "llm_as_judge", "workflow", "lint", "ü.py"]
    for words in (lint, [*lint, "--json"]):
        done = python(*words, PYTHONIOENCODING="ascii")
        assert done.returncode == 1 and "Traceback" not in done.stderr and "W201" in done.stdout
    assert "Ärger" in json.loads(done.stdout)[0]["message"]
    done = python("-OO", "-m", "llm_as_judge", "plan")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "PYTHONOPTIMIZE=2" in done.stderr


def test_commands_work_without_a_folder_of_configurations(cli: CommandLine) -> None:
    cli("workflow", "lint", "w.py")
    cli("workflow", "lint", "w.py", "--config", "config/training.yaml")
    cli.refused("workflow", "lint", "w.py", "--config", "config/no.yaml")
    assert load_config("config/training.yaml").base_model.key == "qwen25-7b"
    assert (Path(load_config().base_model.path) / "model.safetensors").exists()


#: Files that git ignores, where they could be packed.
PRIVATE = "config/llm.yaml config/.env .env llm_as_judge/build/x.py llm_as_judge/embedded/weights/policy/.env".split()
BUILD = "from setuptools import build_meta as b; print(b.build_sdist({0!r})); print(b.build_wheel({0!r}))"


@pytest.mark.parametrize("clone", [True, False])
def test_both_packages_have_their_parts_and_nothing_that_git_ignores(tmp_path: Path, clone: bool) -> None:
    pytest.importorskip("setuptools", "77")
    site, source = tmp_path / "site", tmp_path / "source"
    ignore = shutil.ignore_patterns("*.safetensors", "__pycache__")
    for name in ("llm_as_judge", "llm_as_judge_env", "config", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    for name in PRIVATE[: None if clone else 3]:  # without git, only those that a user is told to write
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("api_key: sk-private\n")
    (source / "tests").mkdir()
    (source / "tests/test_alone.py").touch()
    if clone:
        subprocess.run(["git", "init", "-q", source], check=True)
    built = subprocess.run(
        [sys.executable, "-c", BUILD.format(str(tmp_path))], cwd=source, check=True, capture_output=True, text=True
    )
    archive, wheel = (tmp_path / line for line in built.stdout.splitlines() if line.startswith("llm_as_judge-"))
    with tarfile.open(archive) as packed:
        packed_names = {name.partition("/")[2] for name in packed.getnames()}
    with zipfile.ZipFile(wheel) as unpacked:
        unpacked.extractall(site)
    installed = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    own = {"llm_as_judge/py.typed", "llm_as_judge/embedded/weights/policy/tokenizer.json"}
    own |= {f"llm_as_judge_env/{name}" for name in ("py.typed", "__init__.py", "taskset.py", "harness.py")}
    assert own <= packed_names & installed and "config/llm.yaml.example" in packed_names
    assert "examples/own_verdict/judge.py" in packed_names
    assert "llm_as_judge/config/defaults/own_verdict/problems.jsonl" in installed
    private = [name for name in packed_names | installed if Path(name).name in ("llm.yaml", ".env", "x.py")]
    assert not private and not any(name.startswith("tests/") for name in packed_names | installed)
    (metadata,) = site.glob("*.dist-info/METADATA")
    assert "Description-Content-Type: text/markdown" in metadata.read_text(encoding="utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.path.append({str(site)!r})\n"
        "from llm_as_judge.commands.app import main; from llm_as_judge.config.loading import load_config\n"
        "from llm_as_judge.data.settings import load_settings\n"
        "config = load_config('config/embedded.yaml')\n"
        "assert config.workflow.guidance.is_file() and config.workflow.enhancer.is_file()\n"
        "assert config.base_model.path.startswith(sys.path[-1]), config.base_model\n"
        "assert load_settings() and load_config('config/training.yaml')\n"
        "sys.exit(main(['workflow', 'lint', 'w.py']))"
    )
    done = python("-c", code, PYTHONPATH="")
    assert done.returncode == 0, done.stderr


# Errors


def test_a_wrong_setting_is_one_line_on_standard_error(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ["train", "--set", "lerning_rate=1", "--json"]
    assert cli(*wrong, status=2) == ""
    unknown = "--set lerning_rate: unknown setting 'lerning_rate'; did you mean training.learning_rate?"
    assert cli.err == f"error: {unknown}\n"
    monkeypatch.setenv("LLM_AS_JUDGE_DEBUG", "1")
    with pytest.raises(LLMAsJudgeError):
        main(wrong)


def failure(work: Callable[[], object]) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        work()
    return caught.value


def test_known_errors_are_one_line_without_secrets_and_bugs_a_traceback(trainer: Trainer, cli: CommandLine) -> None:
    for error, line in (
        (ProviderError("http://me:word@x/v1 refused key sk-secret"), "error: http://...@x/v1 refused key ...\n"),
        (PermissionError(errno.EACCES, "", "/root/logs"), "error: /root/logs: permission denied; .*--set log_dir=DIR"),
        (failure(lambda: torch.empty(2**55)), r"error: not enough memory \(tried to allocate \d+ bytes\); .*micro_bat"),
        (SystemExit(0), r"error: .*: sys.exit\(0\); raise an error instead"),  # a user's code; no success
    ):
        trainer.error = error
        assert re.match(line, cli.refused("train", "--set", "executor.api_key=sk-secret", "--set", "judge.api_key=e"))
    mismatch = failure(lambda: torch.empty(2) @ torch.empty(3))
    for bug in (mismatch, ZeroDivisionError("a bug"), FileNotFoundError(errno.ENOENT, "No such file", "x")):
        trainer.error = bug
        with pytest.raises(type(bug)):
            main(["train"])


def test_ctrl_c_is_exit_130_and_says_how_to_continue_if_anything_was_saved(trainer: Trainer, cli: CommandLine) -> None:
    command = ["train", "--fresh", "--set", "run_name=a", "--set", "executor.api_key=sk-secret"]
    cli(*command, status=130)
    assert cli.err == "interrupted; nothing was saved yet\n"
    trainer.saves = True
    cli(*command, status=130)
    assert "llm-as-judge train --set run_name=a --set executor.api_key=... --resume" in cli.err
    assert "secret" not in cli.err
    old = Path("checkpoints/nano/grpo_mixed/step_60")
    old.mkdir(parents=True)
    os.utime(old, (1e9, 1e9))
    cli("train", status=130)
    assert "--resume" not in cli.err
    cli("train", "--resume", status=130)  # it continued from there, and can do so again
    assert "train --resume" in cli.err


@pytest.mark.parametrize("ignored", [False, True], ids=["in a terminal", "in the background of a script"])
def test_sigterm_is_like_ctrl_c_but_exit_143(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, ignored: bool) -> None:
    saved = []

    async def run(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(5)
        except (asyncio.CancelledError, KeyboardInterrupt):
            saved.append("as on Ctrl-C")
            raise

    monkeypatch.setattr("llm_as_judge.commands.train.run_training", run)
    before, on_sigint = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cli("train", status=143)
        assert signal.getsignal(signal.SIGINT) is (signal.SIG_IGN if ignored else on_sigint)
    finally:
        signal.signal(signal.SIGINT, on_sigint)
    assert cli.err.startswith("terminated") and saved
    assert signal.getsignal(signal.SIGTERM) is before


# Commands


def test_flags_of_train_are_settings(trainer: Trainer, cli: CommandLine) -> None:
    flags = ["--max-steps", "3", "--device", "cuda:1", "--model", "qwen3-8b", "--set", "seed=5", "--resume"]
    cli("train", *flags, status=130)
    config = trainer.config
    assert config is not None and trainer.resume and config.training.seed == 5
    assert (config.training.max_steps, config.model.device, config.model.model_name) == (3, "cuda:1", "qwen3-8b")
    cli("train", status=130)
    assert not trainer.resume


def test_the_workflow_of_a_solution_can_be_linted_and_run(address: str, cli: CommandLine) -> None:
    server = as_options([f"executor.base_url={address}", "executor.temperature=0"])
    Path("p.txt").write_text("Tom has 3 apples. He buys 4 more. How many apples does Tom have now?", encoding="utf-8")
    solved = cli.json("solve", "--untrained", "--file", "p.txt", *server)
    assert (solved["answer"], solved["outcome"], solved["fallback"]) == ("7", "finished", False)
    Path("w.py").write_text(solved["workflow"], encoding="utf-8")
    assert "w.py: no findings" in cli("workflow", "lint", "w.py")
    run = ["workflow", "run", "w.py", "--problem", Path("p.txt").read_text("utf-8"), *server]
    result = cli.json(*run)
    assert (result["answer"], result["tokens"], result["cost"]) == ("7", solved["executor_tokens"], 0)
    assert [call["name"] for call in result["calls"]] == [call["name"] for call in solved["trace"]]
    assert "caveat" in cli("solve", "Prove the spectral theorem.", "--untrained", "--fallback", *server)
    assert "caveat" in cli(*run)
    for old, new, said in (("return ", "return int('x'), ", "ValueError: invalid"), ("input=", "inptu=", "W203")):
        Path("w.py").write_text(SINGLE_CALL.replace(old, new), encoding="utf-8")
        assert cli(*run, status=1).count(said) == 1


def checks(cli: CommandLine, *words: str, settings: list[str], ok: bool = False) -> dict[str, dict[str, Any]]:
    """What ``doctor`` found, by check; ``ok``: whether all checks pass."""
    found = cli.json("doctor", *words, *as_options(settings), status=0 if ok else 1)
    assert found["ok"] is ok
    return {check["name"]: check for check in found["checks"]}


def test_doctor_names_each_failing_check(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("logs").write_text("in the way", encoding="utf-8")
    Path("empty").mkdir()
    closed = ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1", "judge.mode=rules"]
    wrong = [*closed, "model_name=./empty", "device=cuda:0", "train_dataset=no.jsonl", "test_dataset=none.jsonl"]
    found = checks(cli, settings=wrong)
    assert [name for name in ("python", "machine", "sandbox", "folder checkpoints") if not found[name]["ok"]] == []
    assert [name for name in ("model", "executor", "folder logs", "data", "torch") if found[name]["ok"]] == []
    assert "no.jsonl" in found["data"]["detail"] and "model.device=cuda:0" in found["torch"]["detail"]
    own = checks(cli, settings=["executor.provider=local", "executor.model=policy", "judge.mode=rules"])
    assert own["executor"] == {**own["executor"], "ok": True, "detail": "the policy's base weights (see model)"}
    other = checks(cli, settings=["executor.provider=local", "executor.model=./empty", "judge.mode=rules"])
    assert not other["executor"]["ok"] and "'./empty': ./empty cannot be loaded" in other["executor"]["detail"]


def test_doctor_leaves_nothing_behind(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", os.getcwd())
    before, closed = {*Path().rglob("*")}, ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1"]
    for more in ([], [*closed, "executor.max_retries=0"]):
        assert checks(cli, settings=["judge.mode=rules", *more], ok=not more)["executor"]["ok"] == (not more)
    assert {*Path().rglob("*")} == before


@pytest.mark.slow
def test_doctor_finds_a_policy_that_needs_a_warm_up(cli: CommandLine, address: str) -> None:
    server = [f"executor.base_url={address}", f"judge.base_url={address}", "prompt_max_length=4096"]
    found = checks(cli, "--policy", settings=server, ok=True)
    valid = re.match(r"valid (\d+) % of 24 workflows", found["policy"]["detail"])
    assert valid and int(valid[1]) >= 90, found["policy"]
    bad = [*server, "workflow.prompt=full"]  # which the nano policy has never seen
    found = checks(cli, "--policy", settings=bad)
    assert "llm-as-judge warmup" in found["policy"]["detail"] and " x W" in found["policy"]["detail"]
    assert not found["policy"]["ok"]
