"""The tutorial's commands run as they stand, in order, in one folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What only a clone can do; continuous integration does it before any test.
OUTSIDE = ("git clone ", "make setup", ". .venv/")
#: Stands for the installed command: the same program, with a port of this test's own and less work for training.
COMMAND = """llm-as-judge() {{
    case $1 in doctor|solve|train|evaluate) set -- "$@" {address} ;; esac
    case $1 in train) set -- "$@" --max-steps 1 {less} ;; esac
    echo "ran: $1" >&2
    {python} -m llm_as_judge "$@"
}}
set -eu
"""


def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(OUTSIDE)]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    address = " ".join(f"--set {role}.base_url=http://127.0.0.1:{port}/v1" for role in ("executor", "judge"))
    less = {"rollout_batch_size": 2, "num_return_sequences_in_group": 2, "eval_problems": 2, "plan_matrix": "false"}
    changes = " ".join(f"--set {name}={value}" for name, value in less.items())
    script = COMMAND.format(address=address, less=changes, python=sys.executable) + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^ran: (\w+)$", done.stderr, re.MULTILINE)
    assert ran == ["doctor", "solve", "train", "monitor", "analyze", "solve", "data", "evaluate", "export"]
    assert "answer" in done.stdout and "2 answers of 2 records, 0 faults" in done.stdout
    assert (tmp_path / "my-policy/adapter_model.safetensors").is_file()
    named = set(re.findall(r"llm-as-judge ([a-z]+)", page)) - {"is"}
    assert named - set(ran) <= {"serve"}, "a command that is named only"
