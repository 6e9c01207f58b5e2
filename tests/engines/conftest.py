"""The engines are tested on the tiny policy of the rl tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "rl"))
