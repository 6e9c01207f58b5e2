"""``python scripts/eval_6datasets.py``: ``llm-as-judge evaluate``, by default on every file of data/test."""

import sys
from pathlib import Path

from llm_as_judge.cli.app import main

files = [] if "--data" in sys.argv else sorted(Path("data/test").glob("*_test.jsonl")) or [Path("data/test")]
data = [word for file in files for word in ("--data", str(file))]
sys.exit(main(["evaluate", "--config", "config/training.yaml", *data, *sys.argv[1:]]))
