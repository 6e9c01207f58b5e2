"""``python scripts/download_datasets.py``: ``llm-as-judge data download`` with its options."""

import sys

from llm_as_judge.commands.app import main

sys.exit(main(["data", "download", *sys.argv[1:]]))
