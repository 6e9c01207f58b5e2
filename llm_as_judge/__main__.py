"""``python -m llm_as_judge``: the command line."""

import sys

from llm_as_judge.commands.app import main

if __name__ == "__main__":
    sys.exit(main())
