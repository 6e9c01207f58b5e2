"""``python train.py``: ``llm-as-judge train`` with config/training.yaml, which --config replaces."""

import sys

from llm_as_judge.commands.app import main

sys.exit(main(["train", "--config", "config/training.yaml", *sys.argv[1:]]))
