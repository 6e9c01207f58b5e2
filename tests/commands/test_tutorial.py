"""The commands of the tutorial and of the how-to page run unchanged, in order, in one folder."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from llm_as_judge.config.loading import load_config
from llm_as_judge.runlog import read_events

ROOT = Path(__file__).parents[2]
#: Commands of a fresh clone, which continuous integration runs before any test.
OUTSIDE = ("git clone ", "make setup", ". .venv/")
#: Replaces the installed command: the same program with another server and less work for training.
COMMAND = """llm-as-judge() {{
    case $1 in doctor|solve|train|evaluate|judge|workflow) set -- "$@" {address} ;; esac
    case $1 in train) set -- "$@" --max-steps 1 {less} ;; esac
    echo "ran: $1" >&2
    {python} -m llm_as_judge "$@"
}}
set -eu
"""
#: Blocks that need a GPU, a download or an endpoint are marked sh instead of bash.
ELSEWHERE = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def run(name: str, folder: Path, address: str) -> tuple[list[str], str]:
    """Run the page's commands; returns their names and what they printed."""
    blocks = re.findall(r"```bash\n(.*?)```", page(name), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(OUTSIDE)]
    to = " ".join(f"--set {role}.base_url={address}" for role in ("executor", "judge"))
    less = {
        "rollout_batch_size": 2,
        "num_return_sequences_in_group": 2,
        "eval_problems": 2,
        "plan_matrix": "false",
        "baselines": "false",
    }
    changes = " ".join(f"--set {name}={value}" for name, value in less.items())
    script = COMMAND.format(address=to, less=changes, python=sys.executable) + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^ran: (\w+)$", done.stderr, re.MULTILINE), done.stdout


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(tmp_path: Path, address: str) -> None:
    ran, printed = run("tutorial.md", tmp_path, address)
    assert ran == ["doctor", "solve", "train", "monitor", "analyze", "solve", "data", "evaluate", "export"]
    assert "answer" in printed and "2 answers of 2 records, 0 faults" in printed
    assert (tmp_path / "my-policy/adapter_model.safetensors").is_file()
    named = set(re.findall(r"llm-as-judge ([a-z]+)", page("tutorial.md"))) - {"is"}
    assert named - set(ran) <= {"serve"}, "a command that is named only"


@pytest.mark.slow
def test_every_recipe_that_needs_no_gpu_works(tmp_path: Path, address: str) -> None:
    ran, printed = run("howto.md", tmp_path, address)
    assert ran == ["judge", "data", "train", "evaluate", "workflow", "train", "analyze"]
    assert "3 answers of 3 records, 0 faults" in printed and "Twice" in printed
    (log,) = (tmp_path / "logs").rglob("brief.jsonl")
    terms = [event["terms"] for event in read_events(log) if event["kind"] == "rollout" and event["terms"]]
    assert terms and all("my_rewards.py:brevity" in of for of in terms)


def test_commands_that_cannot_run_here_name_existing_settings_and_files() -> None:
    blocks = ELSEWHERE.findall(page("howto.md"))
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    commands = [shlex.split(part, comments=True) for line in lines for part in line.split(" && ")]
    checked = 0
    for words in (words for words in commands if "--config" in words):
        changes = [value for option, value in itertools.pairwise(words) if option == "--set"]
        checked += len(changes)
        load_config(ROOT / words[words.index("--config") + 1], changes)
    assert checked > 5
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for program, *given in commands:
        if program == "make":
            assert given[0] in targets
        elif Path(program).name in ("python", "python3", "pip"):
            named = re.findall(r"\.\[(.*)\]", " ".join(given))
            assert set(",".join(named).split(",")) - {""} <= set(extras)
        else:
            assert program == "llm-as-judge" or (ROOT / program).is_file()
