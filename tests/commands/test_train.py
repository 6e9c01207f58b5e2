"""The main job end to end at small scale; a spent budget or a full disk stops it, and it continues."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED, FinishedRun, as_options, run_settings
from helpers.run_logs import read_events, read_rollouts
from helpers.workflows import linted
from msgspec import to_builtins
from transformers import Qwen2Config, Qwen2ForCausalLM

from llm_as_judge.assembly.budget import budget
from llm_as_judge.assembly.policy import load_author, newest_checkpoint
from llm_as_judge.assembly.progress import Silent
from llm_as_judge.assembly.run_folder import _changes, _deciding
from llm_as_judge.assembly.training import open_training
from llm_as_judge.commands.train import run_training
from llm_as_judge.commands.warmup import run_warmup
from llm_as_judge.commands.warmup_pairs import Pairs
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import BudgetConfig, Config
from llm_as_judge.embedded.server import EXECUTOR, MODEL_NAME
from llm_as_judge.errors import BudgetSpent, ConfigError, DataError
from llm_as_judge.evaluation.written import Written
from llm_as_judge.events import RunEvent, UsageEvent
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.llm.client import Usage
from llm_as_judge.rl.warmup import WarmUp
from llm_as_judge.runlog import EventLog
from llm_as_judge.types import Question
from llm_as_judge.workflow.contract import ASKED_PREFILL
from llm_as_judge.workflow.prompt import Layer1


def test_train_measures_before_and_after_and_writes_log_results_and_checkpoints(finished_run: FinishedRun) -> None:
    for words in (
        "untrained policy", "trained policy", "single call everywhere", "per-domain oracle", "step 2/2",
        "step 2  validation: right", "Trained minus untrained policy:", "Contrast: ", "Models asked",
    ):  # fmt: skip
        assert words in finished_run.printed
    before, short, _ = finished_run.printed.partition("--set baselines=none")
    assert short and "held-out problems are solved before and after training" in " ".join(before.split())
    saved = json.loads((finished_run.folder / "results/training/nano/grpo_mixed.json").read_text())
    assert set(saved) >= {"before", "after", "baselines", "seconds", "judge", "workflows"} and saved["steps"] == 2
    assert set(saved["after"]) >= {"overall", "math", "qa", "code", "valid_rate"}
    assert saved["gain"]["value"] == pytest.approx(saved["after"]["overall"] - saved["before"]["overall"])
    picture = finished_run.folder / "results/training/nano/grpo_mixed.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    for name in ("untrained", "trained"):
        records = read_events(finished_run.folder / f"results/evaluation/nano_grpo_mixed_{name}_policy.jsonl")
        assert [event["kind"] for event in records] == ["rollout"] * 4, "view shows them"
    kinds = [event["kind"] for event in read_events(finished_run.log)]
    assert kinds.count("step") == 2 and kinds.count("rollout") == 2 * 3 * 3
    assert (finished_run.checkpoint / "adapter_model.safetensors").exists()
    assert newest_checkpoint(load_config(EMBEDDED, finished_run.overrides)) == finished_run.checkpoint


@pytest.mark.slow
def test_a_resumed_run_continues_and_sums_up_its_sessions(finished_run: FinishedRun, tmp_path: Path) -> None:
    run = finished_run.copy(tmp_path)
    saved = json.loads((run.folder / "results/training/nano/grpo_mixed.json").read_text())
    less = ["max_steps=3", "evaluation.baselines=none"]
    resumed = asyncio.run(run_training(load_config(EMBEDDED, [*run.overrides, *less]), resume=True))
    assert resumed.steps == 3 and (resumed.baselines, resumed.workflows) == ([], {})
    assert resumed.usage["executor"].calls > saved["usage"]["executor"]["calls"] > 0
    assert resumed.as_json()["before"] == saved["before"]
    assert [event["step"] for event in read_events(run.log) if event["kind"] == "step"] == [1, 2, 3]


def test_resume_refuses_and_lists_changed_settings(finished_run: FinishedRun, tmp_path: Path, cli: CommandLine) -> None:
    changes = "training.seed=7 learning_rate=0.5 cpu_seconds=7 token_budget=7 max_steps=3 executor.timeout_s=9".split()
    error = cli.refused("train", *as_options([*finished_run.copy(tmp_path).overrides, *changes]), "--resume")
    for part in ("seed was 0, is 7", "token_budget was", "sandbox.cpu_seconds was", "--fresh"):
        assert part in error
    assert not any(free in error for free in ("max_steps", "timeout_s", "learning_rate"))
    run = finished_run.copy(tmp_path / "older")
    (run.checkpoint.parent / "run.json").unlink()
    assert "no settings to compare" in cli.refused("train", *as_options(run.overrides), "--resume")


def test_resume_compares_files_by_content(finished_run: FinishedRun, tmp_path: Path, cli: CommandLine) -> None:
    run, own = finished_run.copy(tmp_path), tmp_path / "own.py"
    own.write_text("def right(question, answer): return 1.0\ndef brief(completions, **_): return [0.0]\n")
    named = (f"judge.function={own}:right", f"reward.functions={{'{own}:brief': 0.2}}")
    for change in (*named, f"model.adapter={run.checkpoint}"):
        name = change.partition("=")[0]
        assert f"{name} or its files" in cli.refused("train", *as_options([*run.overrides, change]), "--resume")

    def deciding(function: str, rewards: str) -> dict[str, Any]:
        return _deciding(load_config(EMBEDDED, [*run.overrides, function, rewards]))

    free = "judge.price_per_million_input=3", "gradient_checkpointing=true"
    assert not [*_changes(deciding(*named), _deciding(load_config(EMBEDDED, [*run.overrides, *named, *free])))]
    was, moved = deciding(*named), own.rename(tmp_path / "moved.py")
    again = [part.replace(str(own), str(moved)) for part in named]
    assert not [*_changes(was, deciding(*again))]
    assert [*_changes(was, deciding(again[0], again[1].replace("0.2", "5")))] == ["reward.functions or its files"]
    moved.write_text(moved.read_text().replace("1.0", "0.0"))
    assert len([*_changes(was, deciding(*again))]) == 2


@pytest.mark.slow
def test_training_starts_from_a_warm_up(tmp_path: Path, address: str, cli: CommandLine) -> None:
    small = {"sft_steps": 2, "workflows_per_problem": 2, "look_every": 2}
    unknown = {"workflow.prompt": "full", "prompt_max_length": 4096}  # a prompt the nano policy has never seen
    chosen = run_settings(tmp_path, address, sft_learning_rate=1e-4, **small, **unknown)
    printed = cli("warmup", *as_options(chosen))
    assert "warm-up step 0: held-out loss" in printed and "warm-up step 2" in printed
    assert " x W" in printed, "lint codes of invalid workflows"
    adapter = tmp_path / "checkpoints/nano/grpo_mixed_warmup/step_2"
    assert f"--set model.adapter={adapter}" in printed.replace("\n", "")
    config = load_config(EMBEDDED, [*run_settings(tmp_path, address), f"model.adapter={adapter.parent}"])
    assert all(bool(p.any()) for p in load_author(config).policy.trainable_parameters)
    report = asyncio.run(GRPOTrainer(config=config).train(num_steps=1))
    assert report is not None and report.step == 1 and report.kl < 0.1, "the reference is the warmed policy"


def test_a_warm_up_keeps_its_most_valid_step_and_ends_when_nothing_improves(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, shares = iter([2.0, 1.0, 1.1, 1.2, 1.3, 0.0]), iter([3, 1, 2, 2, 1, 9])
    monkeypatch.setattr(WarmUp, "loss", lambda self, replies: next(losses))
    monkeypatch.setattr(
        "llm_as_judge.evaluation.written.look_at", lambda *_, samples: Written(10, {"once": next(shares)}, {})
    )
    chosen = run_settings(tmp_path, address, sft_steps=9, look_every=1, workflows_per_problem=1)
    said, progress = list[str](), Silent()
    monkeypatch.setattr(progress, "say", said.append)
    with pytest.raises(DataError, match="neither the held-out loss nor the valid workflows improved"):
        run_warmup(load_config(EMBEDDED, chosen), progress=progress)
    losses, shares = iter([2.0, 1.0, 1.1, 1.2, 1.3, 0.0]), iter([1, 2, 4, 3, 4, 9])
    found = run_warmup(load_config(EMBEDDED, chosen), progress=progress)
    assert found.adapter.name == "step_2" and found.looks[-1].step == 4 and "step 2 is kept" in said[-1]


def test_with_a_prefill_a_warm_up_pair_says_what_is_asked_before_it_builds_operators() -> None:
    config = load_config(EMBEDDED, ["workflow.prefill=true", "warmup.varied=0"])
    author = load_author(config)
    question = Question("q", "Ann has 3 pens. She buys 4 more.\nHow many pens\nhas she now?", "math")
    pair = Pairs(config, author)._pair(question, Random(0))
    source = author.prompt(question).prefill + pair.text
    assert source.startswith(f"{ASKED_PREFILL}How many pens has she now?\n        self.")
    assert not linted(source) and source.count("# ") == 1

    own = config.workflow.model_copy(update={"prompt": "full"})
    full = Pairs(config.model_copy(update={"workflow": own}), replace(author, prompt=Layer1(own)))
    assert "# " not in full._pair(question, Random(0)).text


def test_with_repairs_half_of_the_warm_up_is_second_turns() -> None:
    author = load_author(load_config(EMBEDDED, []))
    pairs = Pairs(load_config(EMBEDDED, ["workflow.repairs=1"]), author)
    text, rng = author.policy.tokenizer.decode, Random(0)
    question = Question("q", "Find the sum.", "code", entry_point="f", public_tests=("assert f(1) == 2",))
    faults, tests = 0, 0
    for pair in (pairs._pair(question, rng) for _ in range(60)):
        first, _, told = text(pair.prompt_ids).partition("This workflow failed:")
        assert not linted(pair.text), "only sound workflows are learned"
        if told:
            assert pair.text not in first, "the first workflow is not written again"
            faults, tests = faults + ("line " in told), tests + ("public test: assert f(1) == 2" in told)
    assert faults >= 6 and tests >= 6 and 20 <= faults + tests <= 45

    once = Pairs(load_config(EMBEDDED, []), author)
    assert not any("This workflow failed" in text(once._pair(question, rng).prompt_ids) for _ in range(20))


@pytest.mark.slow
def test_any_endpoint_and_any_policy_run_the_same_job(tmp_path: Path, address: str) -> None:
    """A Qwen2.5-shaped policy with random weights, executor and judge over HTTP, with config/training.yaml."""
    shape = Qwen2Config(
        vocab_size=1610, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=False, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    policy = tmp_path / "policy"
    Qwen2ForCausalLM(shape).save_pretrained(policy)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (policy / name).write_bytes((EXECUTOR / name).read_bytes())
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i), "type": "math"} for i in range(1, 9)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    chosen = run_settings(
        tmp_path, address, **{
            "model_name": policy, "executor.model": MODEL_NAME, "judge.model": MODEL_NAME, "eval_every": 0,
            "train_dataset": tmp_path / "train.jsonl", "response_max_length": 24, "dtype": "float32", "max_steps": 1,
            "domain_ratios": "{math: 1.0, code: 0.0, qa: 0.0}", "gradient_checkpointing": "false",
        },
    )  # fmt: skip
    report = asyncio.run(GRPOTrainer(config=load_config("config/training.yaml", chosen)).train())
    assert report is not None and report.unscored == 0
    assert report.valid_rate == 0, "random weights write no workflow, and nothing replaces it"


def left_by(folder: Path) -> tuple[bytes, list[tuple[object, ...]]]:
    """The adapter of a run's second step, and its rollouts."""
    logged = [(e, e.rollout) for e in read_rollouts(folder / "logs/nano/grpo_mixed.jsonl")]
    made = [(e.step, r.problem, r.completion, r.execution.answer, r.tokens, r.reward, e.advantage) for e, r in logged]
    return (folder / "checkpoints/nano/grpo_mixed/step_2/adapter_model.safetensors").read_bytes(), made


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_with_an_executor_that_samples(tmp_path: Path, address: str) -> None:
    def run(name: str, seed: int) -> tuple[bytes, list[tuple[object, ...]]]:
        folder = tmp_path / name
        chosen = run_settings(folder, address, seed=seed, eval_every=0, rollout_batch_size=4)
        asyncio.run(GRPOTrainer(EMBEDDED, [*chosen, "executor.temperature=0.3"]).train())
        return left_by(folder)

    first, again, other = run("first", 0), run("again", 0), run("other", 1)
    assert first[1] == again[1] and len(first[1]) == 24
    assert first[0] == again[0] != other[0]


@pytest.mark.slow
def test_a_spent_budget_stops_and_a_larger_one_continues(tmp_path: Path, address: str, cli: CommandLine) -> None:
    small = {"max_steps": 4, "rollout_batch_size": 4, "save_every": 0, "eval_every": 0, "eval_problems": 2}
    # More than the two requests that check the models, less than the first step's twelve rollouts.
    small |= {"executor.max_tokens": 160, "judge.max_tokens": 160, "lookahead": 0}
    settings = run_settings(tmp_path, address, **small)
    config = load_config(EMBEDDED, [*settings, "budget.max_tokens=400"])
    with pytest.raises(BudgetSpent, match=r"stopped after step 1, which is saved: budget\.max_tokens=400 is spent"):
        asyncio.run(GRPOTrainer(config=config).train())
    newest = newest_checkpoint(config)
    assert newest is not None and newest.name == "step_1"
    settings = [*settings, "evaluation.baselines=single", "max_steps=2"]
    error = cli.refused("train", *as_options([*settings, "budget.max_tokens=400"]), "--resume")
    assert "stopped after step 1" in error, "what earlier sessions took counts"
    cli("train", *as_options([*settings, "budget.max_tokens=10000000"]), "--resume")
    log = read_events(tmp_path / "logs/nano/grpo_mixed.jsonl")
    assert [event["step"] for event in log if event["kind"] == "step"] == [1, 2]


def test_each_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "run.jsonl"
    with EventLog(path) as log:
        for session in range(2):
            log.log(RunEvent())
            clock[0] += 1800
            log.log(
                UsageEvent(models=to_builtins({"executor": Usage(1, 600, 100, 2.0), "judge": Usage(1, 50, 50, 0.5)}))
            )
            clock[0] += 10_000 * (session + 1)  # between sessions
    now = {"executor": Usage(1, 10, 10, 1.0)}

    def spent(**limits: float) -> str:
        check = budget(BudgetConfig(**limits), path, lambda: now)
        clock[0] += 1800
        return check()

    assert spent() == ""
    assert spent(max_cost=6.1, max_tokens=1621, max_hours=1.51) == ""
    assert "budget.max_cost=6 is spent (6)" in spent(max_cost=6.0)
    assert "budget.max_tokens=1620 is spent (1620)" in spent(max_tokens=1620)
    assert "budget.max_hours=1.5 is spent (1.5)" in spent(max_hours=1.5) and "--resume" in spent(max_hours=1.5)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, left: int = 0) -> None:
    with open(disk / "filler", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, file.tell() - left))


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but the filler and locks, which name the process."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "filler"]
    return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "left", "file"),
    [
        ("checkpoints", 300_000, "checkpoints/nano/grpo_mixed/step_3"),  # within the optimiser
        ("logs", 8192, "logs/nano/grpo_mixed.jsonl"),
        ("buffer", 0, "_top_samples.jsonl"),
    ],
)
def test_training_stops_whole_and_continues_with_space(
    tmp_path: Path, finished_run: FinishedRun, disk: Path, place: str, left: int, file: str, cli: CommandLine
) -> None:
    run = finished_run.copy(tmp_path / "run")
    setting = {"checkpoints": "output_dir", "logs": "log_dir", "buffer": "persistence_dir"}[place]
    shutil.copytree(run.folder / place, disk / place)
    places = {name: run.folder / name for name in ("checkpoints", "logs", "results", "buffer")} | {place: disk / place}
    settings = [f"{setting}={disk / place}", "baselines=none", "max_steps=3"]
    command = ["train", *as_options([*run.overrides, *settings]), "--resume"]
    before = {name: contents(folder) for name, folder in places.items()}
    fill(disk, left)

    error = cli.refused(*command)
    (line,) = (line for line in error.splitlines() if line.startswith("error: "))
    assert file in line and "no space left on device" in line and "continue with --resume" in error
    for path, old in before["checkpoints"].items() | before["results"].items():
        assert path.read_bytes() == old
    for path, old in before["logs"].items():
        assert path.read_bytes().startswith(old)
    assert not [path for folder in places.values() for path in folder.rglob(".*.*") if path.suffix != ".lock"]

    (disk / "filler").unlink()
    cli(*command)
    log = list(read_events(places["logs"] / "nano/grpo_mixed.jsonl"))
    results = json.loads((places["results"] / "training/nano/grpo_mixed.json").read_text())
    assert results["steps"] == 3 and {1, 2} <= {event["step"] for event in log if event["kind"] == "step"}
    assert (places["checkpoints"] / "nano/grpo_mixed/step_3/checkpoint.json").is_file()
    kept = [json.loads(line) for path in places["buffer"].rglob("*_top_samples.jsonl") for line in path.open()]
    right = {e["step"] for e in log if e["kind"] == "rollout" and e["rollout"]["verdict"]["correct"]}
    assert {entry["step"] for entry in kept} == right


def test_one_model_in_both_roles_resumes_to_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's base weights answer the operators, with the adapter off, in one process without a server."""

    local = {"executor.provider": "local", "executor.model": "policy", "executor.context": 1024, "judge.mode": "rules"}
    local |= {"executor.max_tokens": 40, "rollout_batch_size": 2, "num_return_sequences_in_group": 2}

    def run(name: str, *steps: int) -> tuple[bytes, list[tuple[object, ...]]]:
        folder = tmp_path / name
        chosen = run_settings(folder, "http://127.0.0.1:9/v1", eval_every=0, **local, lookahead=0)
        for done in steps:
            config = load_config(EMBEDDED, [*chosen, f"max_steps={done}"])
            asyncio.run(run_steps(config, resume=done > steps[0]))
        return left_by(folder)

    async def run_steps(config: Config, resume: bool) -> None:
        async with open_training(config, resume=resume) as training:
            await training.train()

    settings = run_settings(tmp_path / "short", "http://127.0.0.1:9/v1", **{**local, "executor.context": 64})
    with pytest.raises(ConfigError, match=r"the prompt has \d+ tokens, it reads at most 63; raise executor\.context"):
        asyncio.run(run_steps(load_config(EMBEDDED, settings), resume=False))
    assert not list((tmp_path / "short").rglob("*.jsonl")), "before the first step, which no workflow could pass"
    whole, resumed = run("whole", 2), run("resumed", 1, 2)
    assert whole == resumed
    assert len(whole[1]) == 8 and any(tokens for *_, tokens, _, _ in whole[1]), "workflows asked the executor"
