"""``python scripts/eval_6datasets.py``: ``llm-as-judge evaluate``, by default on every test set in data/test."""

import sys

from llm_as_judge.commands.app import main

data = [] if "--data" in sys.argv else ["--data", "data/test"]
sys.exit(main(["evaluate", "--config", "config/training.yaml", *data, *sys.argv[1:]]))
