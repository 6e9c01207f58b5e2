"""``scripts/run_full_pipeline.sh``: the steps in order with the right arguments."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/run_full_pipeline.sh"
#: A fake interpreter that logs each command of llm-as-judge; other scripts really run.
PYTHON = """#!{python}
import json, pathlib, subprocess, sys
words = sys.argv[1:]
if words[:2] != ["-m", "llm_as_judge.commands.app"]:
    sys.exit(subprocess.run([{python!r}, *words], stdin=sys.stdin).returncode)
words = words[2:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[:2] == ["data", "process"]:
    out = pathlib.Path(words[words.index("--out") + 1])
    for name in ("gsm8k", "mbpp"):
        (out / "test").mkdir(parents=True, exist_ok=True)
        (out / f"test/{{name}}_test.jsonl").touch()
"""


def run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    log = folder / "log"
    python = folder / "python"
    python.write_text(PYTHON.format(python=sys.executable, log=str(log)))
    python.chmod(0o755)
    own = ["--data", str(folder / "data"), "--raw", "RAW", "--set", f"output_dir={folder}/check points",
           "--set", f"results_dir={folder}/results"]  # fmt: skip
    environment = {**os.environ, "PYTHON": str(python), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [SCRIPT, *own, *options], capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    return done, [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_all_steps_run_in_order_and_every_test_set_is_evaluated(tmp_path: Path) -> None:
    done, commands = run(tmp_path, "--model", "nano", "--device", "cpu", "--sample")
    assert done.returncode == 0, done.stderr
    assert [" ".join(words[:2]) for words in commands] == [
        "data download", "data process", "train --config", "evaluate --config",
    ]  # fmt: skip
    process, train, evaluate = commands[1], commands[2], commands[3]
    assert process[2:6] == ["--raw", "RAW", "--out", f"{tmp_path}/data"] and "--any-split" in process
    for words in (train, evaluate):
        assert f"data.train_dataset={tmp_path}/data/mixed/train_mixed.jsonl" in words
        assert f"data.test_dataset={tmp_path}/data/mixed/test_mixed.jsonl" in words
        assert words[words.index("--model") + 1] == "nano" and "config/embedded.yaml" in words
    assert train[train.index("--device") + 1] == "cpu" and train[train.index("--max-steps") + 1] == "2"
    assert "--checkpoint" not in evaluate and "--untrained" not in evaluate  # the run's own newest one
    assert evaluate[evaluate.index("--limit") + 1] == "4" and evaluate[evaluate.index("--device") + 1] == "cpu"
    files = [file for word, file in itertools.pairwise(evaluate) if word == "--data"]
    assert files == [f"{tmp_path}/data/test/{name}_test.jsonl" for name in ("gsm8k", "mbpp")]
