"""The command line: quick to start, clear in its errors, clean in its JSON."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.assembly.folder import RunFolder, Started
from llm_as_judge.assembly.progress import Progress
from llm_as_judge.commands.app import main
from llm_as_judge.commands.train import TrainResult
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import LLMAsJudgeError, ProviderError
from llm_as_judge.evaluation.metrics import Estimate
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.runlog import EventLog
from llm_as_judge.solver import Solution
from llm_as_judge.types import Exchange, Execution, OperatorCall, Question

ROOT = Path(__file__).parents[2]
WORKFLOW = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        result = await self.answer_generate(input=problem)
        return result['answer'], 0.0
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)
    (tmp_path / "config").symlink_to(root / "config")


def save(folder: Path) -> None:
    """A checkpoint as far as the command line looks at it."""
    folder.mkdir(parents=True, exist_ok=True)


@dataclass
class Trainer:
    """Stands in for the training run, which is tested elsewhere."""

    error: BaseException | None = None
    config: Config | None = None
    resume: bool | None = None
    saves: bool = False

    async def train(self, config: Config, *, resume: bool, progress: Progress) -> TrainResult:
        if self.saves:
            save(Path("checkpoints/nano/a/step_3"))
        if self.error is not None:
            raise self.error
        self.config, self.resume = config, resume
        progress.say("step 1")
        one = Estimate(1.0, 0.2, 1.0, 1)
        summary = Summary(
            one, {"math": one}, one, {}, (1.0,), None, 0, {}, {}, {}, {"math": {"answer": 1}}, 10.0, 1.0, 0.0
        )
        places = Path("checkpoints"), Path("log.jsonl"), Path("results/grpo_mixed.json")
        started = Started(RunFolder(config, "", *places, None, ""), "20261122-1", EventLog("log.jsonl"))
        return TrainResult(
            started, summary, summary, [], {"answer": {"math": 1.0}}, {"math": "answer"}, None, 1, 3, "sandbox: full",
            {}, {"training": 1.0, "all": 2.0},
        )  # fmt: skip


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer()
    monkeypatch.setattr("llm_as_judge.rl.checkpoint.verify", lambda path: None)
    monkeypatch.setattr("llm_as_judge.commands.train.run_training", made.train)
    return made


# Start-up


def test_help_loads_neither_torch_nor_anything_slow() -> None:
    code = (
        "import sys; from llm_as_judge.commands.app import main; status = main(['--help'])\n"
        "slow = {'torch', 'transformers', 'peft', 'numpy', 'pydantic', 'yaml', 'aiohttp', 'asyncio'}\n"
        "sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("train", "evaluate", "solve", "workflow", "embedded", "data", "doctor"):
        assert command in done.stdout


def test_help_takes_less_than_300_milliseconds_of_cpu() -> None:
    times = []
    for _ in range(4):  # the first may compile; the least is the program's own
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "llm_as_judge.commands.app", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.3, times


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "warmup",
        "evaluate",
        "solve",
        "serve",
        "analyze",
        "monitor",
        "view",
        "report",
        "trace",
        "export",
        "doctor",
        "workflow lint",
        "workflow run",
        "embedded serve",
        "data process",
        "data download",
        "data inspect",
        "data check",
        "judge calibrate",
        "compare",
    ],
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert "Usage: llm-as-judge" in capsys.readouterr().out


# Errors


def test_wrong_setting_is_a_message_on_stderr_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--set", "lerning_rate=1", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "error: --set lerning_rate: unknown setting 'lerning_rate'; did you mean training.learning_rate?\n"
    )


def test_console_script_hands_on_the_exit_status() -> None:
    script = Path(sys.executable).with_name("llm-as-judge")
    done = subprocess.run([script, "train", "--config", "no.yaml"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no.yaml: no such file")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["-m", "llm_as_judge"], ["-m", "llm_as_judge.commands.app"]])
def test_the_package_runs_as_a_module_and_tells_its_version(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("llm-as-judge")


@pytest.mark.parametrize(
    "command",
    ["train", "evaluate", "solve", "compare", "doctor", "workflow lint", "workflow run", "judge calibrate"],
)
def test_a_command_that_takes_a_configuration_takes_the_same_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    told = capsys.readouterr().out
    assert [option for option in ("--config", "--model", "--device", "--set", "--json") if option not in told] == []


def test_dotenv_sets_what_its_names_say_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CUDA_VISIBLE_DEVICES=3\nWANDB_MODE=offline\nVLLM_BASE_URL=http://far:1/v1\n")
    (tmp_path / "w.py").write_text(WORKFLOW, encoding="utf-8")
    code = (
        "import os, sys; from llm_as_judge.commands.app import main\n"
        "assert main(['workflow', 'lint', 'w.py']) == 0 and 'torch' not in sys.modules\n"
        "print(*map(os.environ.get, ('CUDA_VISIBLE_DEVICES', 'WANDB_MODE', 'VLLM_BASE_URL')))"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "WANDB_", "VLLM_"))}
    clean["PYTHONPATH"], clean["WANDB_MODE"] = str(ROOT), "online"
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "3 online http://far:1/v1", done.stderr  # what is set wins


def test_commands_work_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any folder of configurations: the ones of the package are taken."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("w.py").write_text(WORKFLOW, encoding="utf-8")
    assert main(["workflow", "lint", "w.py"]) == 0
    assert main(["workflow", "lint", "w.py", "--config", "config/training.yaml"]) == 0
    assert main(["workflow", "lint", "w.py", "--config", "config/no.yaml"]) == 2
    assert load_config("config/training.yaml").base_model.key == "qwen25-7b"
    assert (Path(load_config().base_model.path) / "model.safetensors").exists()


def test_a_wheel_has_its_configurations_and_works(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", "77")
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("weights", "__pycache__")
    shutil.copytree(ROOT / "llm_as_judge", source / "llm_as_judge", ignore=ignore)
    shutil.copytree(ROOT / "config", source / "config")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (tmp_path / "w.py").write_text(WORKFLOW, encoding="utf-8")
    code = (
        "import sys; from llm_as_judge.commands.app import main\n"
        "from llm_as_judge.config.loading import load_config; from llm_as_judge.data.settings import load_settings\n"
        "config = load_config('config/embedded.yaml')\n"
        "assert config.workflow.guidance.is_file() and config.workflow.enhancer.is_file()\n"
        "assert config.base_model.path.startswith(sys.path[-1]), config.base_model\n"
        "assert load_settings().datasets and load_config('config/training.yaml')\n"
        "sys.exit(main(['workflow', 'lint', 'w.py']))"
    )
    env = {**os.environ, "PYTHONPATH": ""}
    code = f"import sys; sys.path.insert(0, {str(site)!r}); sys.path.append({str(site)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_unknown_option_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--frish"]) == 2
    assert "--frish" in capsys.readouterr().err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_AS_JUDGE_DEBUG", "1")
    with pytest.raises(LLMAsJudgeError):
        main(["train", "--set", "lerning_rate=1"])


def test_provider_error_in_a_run_is_exit_2(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    trainer.error = ProviderError("http://x/v1 refused; start it")
    assert main(["train"]) == 2
    assert capsys.readouterr().err == "error: http://x/v1 refused; start it\n"


def test_ctrl_c_is_exit_130_and_tells_how_to_go_on(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    trainer.error = KeyboardInterrupt()
    command = ["train", "--fresh", "--set", "run_name=a", "--set", "executor.api_key=sk-secret"]
    assert main(command) == 130
    told = capsys.readouterr().err
    assert told == "interrupted; nothing was saved yet\n"
    trainer.saves = True
    assert main(command) == 130
    told = capsys.readouterr().err
    assert "llm-as-judge train --set run_name=a --set executor.api_key=... --resume" in told
    assert "secret" not in told


def test_a_checkpoint_of_an_earlier_run_is_not_offered(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    trainer.error = KeyboardInterrupt()
    old = Path("checkpoints/nano/grpo_mixed/step_60")
    save(old)
    os.utime(old, (1e9, 1e9))
    assert main(["train"]) == 130
    assert "--resume" not in capsys.readouterr().err
    assert main(["train", "--resume"]) == 130  # it went on from there, and may do so again
    assert "train --resume" in capsys.readouterr().err


@pytest.mark.parametrize("ignored", [False, True], ids=["in a terminal", "in the background of a script"])
def test_sigterm_is_as_ctrl_c_but_exit_143(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
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
        assert main(["train"]) == 143
        assert signal.getsignal(signal.SIGINT) is (signal.SIG_IGN if ignored else on_sigint)
    finally:
        signal.signal(signal.SIGINT, on_sigint)
    assert capsys.readouterr().err.startswith("terminated") and saved
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_message_shows_a_key_or_a_password(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    trainer.error = ProviderError("http://me:word@x/v1 refused key sk-secret")
    assert main(["train", "--set", "executor.api_key=sk-secret"]) == 2
    assert capsys.readouterr().err == "error: http://...@x/v1 refused key ...\n"


def test_unwritable_folder_names_path_and_cure(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    trainer.error = PermissionError(errno.EACCES, "Permission denied", "/root/logs")
    assert main(["train"]) == 2
    told = capsys.readouterr().err
    assert "/root/logs: permission denied" in told
    assert "--set log_dir=DIR" in told


def test_a_bug_is_not_hidden(trainer: Trainer) -> None:
    trainer.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        main(["train"])
    trainer.error = FileNotFoundError(errno.ENOENT, "No such file", "x")
    with pytest.raises(FileNotFoundError):
        main(["train"])


# Commands


def test_train_hands_flags_on_and_prints_only_json(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-steps", "3", "--device", "cuda:1", "--model", "qwen3-8b", "--set", "seed=5", "--resume"]
    assert main(["train", *flags, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["seed"] == 5
    assert "step 1" in captured.err and "trained policy" in captured.err
    config = trainer.config
    assert config is not None and trainer.resume
    assert (config.training.max_steps, config.model.device, config.model.model_name) == (3, "cuda:1", "qwen3-8b")


def test_train_starts_anew_unless_told_to_resume(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 0
    assert not trainer.resume
    printed = capsys.readouterr().out
    for words in ("untrained policy", "trained policy", "step_3", "grpo_mixed.json"):
        assert words in printed


def test_solve_takes_text_or_file_but_not_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def solved(config: Config, question: Question, *, repair: bool, **options: Any) -> Solution:
        return Solution(None, question.domain, Execution("finished", question.text), repair, False)

    monkeypatch.setattr("llm_as_judge.commands.solve.run_solve", solved)
    Path("p.txt").write_text("why?", encoding="utf-8")
    assert main(["solve", "--untrained", "--file", "p.txt", "--domain", "qa", "--repair", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["answer"], result["workflow"], result["repaired"], result["fallback"]) == (
        "why?",
        "qa",
        True,
        False,
    )
    for wrong in (
        ["solve"],
        ["solve", "x", "--file", "p.txt"],
        ["solve", "x", "--domain", "art"],
        ["solve", " "],
    ):
        assert main(wrong) == 2


def test_workflow_lint_finds_faults_and_says_so_by_its_exit_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("llm_as_judge.workflow.lint")
    Path("good.py").write_text(WORKFLOW, encoding="utf-8")
    Path("bad.py").write_text(WORKFLOW.replace("AnswerGenerate", "NoSuchOperator"), encoding="utf-8")
    assert main(["workflow", "lint", "good.py"]) == 0
    assert main(["workflow", "lint", "missing.py"]) == 2
    capsys.readouterr()
    assert main(["workflow", "lint", "bad.py", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert any(finding["fatal"] and "NoSuchOperator" in finding["message"] for finding in findings)


def test_workflow_run_prints_the_execution(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[Execution] = []

    async def run(config: Config, source: str, question: Question) -> Execution:
        return made[-1]

    monkeypatch.setattr("llm_as_judge.commands.workflow.run_workflow", run)
    call = OperatorCall("Custom", {"input": "x"}, {"response": "4"}, (Exchange("x", "4", "stop", 10, 5, 0.25, 0.1),))
    made.append(Execution("finished", "2+2", (call,)))
    Path("w.py").write_text(WORKFLOW, encoding="utf-8")
    assert main(["workflow", "run", "w.py", "--problem", "2+2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["answer"], result["tokens"], result["cost"], result["calls"][0]["name"]) == (
        "2+2",
        15,
        0.25,
        "Custom",
    )
    made.append(Execution("raised", None, error="ValueError: x"))
    assert main(["workflow", "run", "w.py", "--problem", "2+2"]) == 1
    assert "ValueError: x" in capsys.readouterr().out


def test_evaluate_refuses_data_and_checkpoints_that_are_not_there() -> None:
    assert main(["evaluate", "--data", "no.jsonl"]) == 2
    assert main(["evaluate", "--checkpoint", "no"]) == 2


def test_an_adapter_and_none_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--untrained", "--checkpoint", str(tmp_path)]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_doctor_names_each_failing_check(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llm_as_judge.sandbox.host")
    Path("logs").write_text("in the way", encoding="utf-8")
    settings = ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1", "model_name=./config"]
    options = [word for setting in settings for word in ("--set", setting)]
    assert main(["doctor", "--json", *options]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    for name in ("python", "torch", "machine", "sandbox", "judge", "folder checkpoints"):
        assert checks[name]["ok"], checks[name]
    for name in ("model", "executor", "folder logs"):
        assert not checks[name]["ok"], checks[name]
        assert checks[name]["detail"]


def test_doctor_reads_the_data_and_looks_for_the_gpu_before_a_run_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    settings = ["train_dataset=no.jsonl", "test_dataset=none.jsonl", "device=cuda:0", "judge.mode=rules"]
    settings += ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1"]
    assert main(["doctor", "--json", *(word for setting in settings for word in ("--set", setting))]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert not checks["data"]["ok"] and "no.jsonl" in checks["data"]["detail"]
    assert not checks["torch"]["ok"] and "model.device=cuda:0" in checks["torch"]["detail"]


def test_doctor_tells_a_policy_that_writes_workflows_from_one_that_needs_a_warm_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def policy_check(prompt: str) -> tuple[bool, str]:
        main(["doctor", "--policy", "--json", "--set", f"workflow.prompt={prompt}", "--set", "prompt_max_length=4096"])
        check = next(c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "policy")
        return check["ok"], check["detail"]

    ok, detail = policy_check("short")
    assert ok and detail.startswith("valid 100 % of 24 workflows"), detail
    ok, detail = policy_check("full")  # a prompt that the nano policy has never seen
    assert not ok and "llm-as-judge warmup" in detail and " x W" in detail, detail


def test_doctor_counts_by_operator_the_replies_that_could_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--operators", "1", "--json"]) == 0
    check = json.loads(capsys.readouterr().out)["checks"][-1]
    assert check["name"] == "operators" and check["ok"]
    assert {line.split(":")[0].strip() for line in check["detail"].splitlines()[1:]} == set(OPERATORS)


def test_an_executor_of_which_nothing_can_be_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--operators", "1", "--json", "--set", "executor.max_tokens=2"]) == 1
    check = json.loads(capsys.readouterr().out)["checks"][-1]
    assert not check["ok"] and "nano-executor gives AnswerGenerate" in check["detail"], check
    assert "cut off" in check["detail"]
