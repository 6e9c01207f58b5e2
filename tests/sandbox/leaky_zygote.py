"""A zygote that leaves its descriptors open to its children."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from llm_as_judge.sandbox.guest import confine
from llm_as_judge.sandbox.guest import zygote_process as zygote

confine.close_others = lambda *kept: None
zygote.main()
