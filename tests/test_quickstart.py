"""The commands of docs/quickstart.md run as they stand, in order, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from llm_as_judge.runlog import read_events

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
#: Needs a fresh clone; continuous integration does it before any test.
OUTSIDE = ("git clone ", "make setup", ". .venv/")
#: Replaces the installed command: the same program with this test's own port and less training.
COMMAND = """llm-as-judge() {{
    case $1 in doctor|solve|train|evaluate|judge|workflow) set -- "$@" {address} ;; esac
    case $1 in train) set -- "$@" --max-steps 1 {less} ;; esac
    echo "ran: $1" >&2
    {python} -m llm_as_judge "$@"
}}
set -eu
"""
LESS = "rollout_batch_size=2 num_return_sequences_in_group=2 eval_problems=2 plan_matrix=false baselines=false"


@pytest.mark.slow
def test_every_command_of_the_quickstart_works(tmp_path: Path, address: str) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(OUTSIDE)]
    to = " ".join(f"--set {role}.base_url={address}" for role in ("executor", "judge"))
    less = " ".join(f"--set {change}" for change in LESS.split())
    script = COMMAND.format(address=to, less=less, python=sys.executable) + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^ran: (\w+)$", done.stderr, re.MULTILINE)
    assert ran == [
        "doctor", "solve", "train", "monitor", "analyze", "solve", "data", "evaluate", "train", "workflow", "train",
        "analyze", "judge", "export",
    ]  # fmt: skip
    assert "2 answers of 2 records, 0 faults" in done.stdout and "Twice" in done.stdout
    assert (tmp_path / "my-policy/adapter_model.safetensors").is_file()
    (log,) = (tmp_path / "logs").rglob("brief.jsonl")
    terms = [event["terms"] for event in read_events(log) if event["kind"] == "rollout" and event["terms"]]
    assert terms and all("my_rewards.py:brevity" in of for of in terms)
