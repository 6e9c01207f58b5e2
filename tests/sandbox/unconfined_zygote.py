"""A zygote on a machine where neither Landlock nor seccomp can be had."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from llm_as_judge.sandbox.guest import confine, landlock, seccomp
from llm_as_judge.sandbox.guest import zygote_process as zygote

landlock.abi = lambda: 0
seccomp.machine = lambda: None
if sys.argv[2] != "unsafe":
    sys.argv[3] = str(confine.NO_PROCESSES)
zygote.main()
