"""``python scripts/process_datasets.py``: ``llm-as-judge data process`` with its options."""

import sys

from llm_as_judge.commands.app import main

sys.exit(main(["data", "process", *sys.argv[1:]]))
