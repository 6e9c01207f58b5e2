"""math-verify beside the rules: asked in a process of its own, which is killed where it hangs."""

from __future__ import annotations

import importlib.util
import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

_LIMIT_S = 20.0


def math_verify_accepts(pairs: list[dict[str, Any]]) -> list[bool] | None:
    """Its verdict on every pair, False where it hangs; None where it is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        return None
    verdicts: list[bool] = []
    while len(verdicts) < len(pairs):
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("math_verify_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for pair in pairs[len(verdicts) :]:
                process.stdin.write(json.dumps(pair) + "\n")
                process.stdin.flush()
                ready, _, _ = select.select([process.stdout], [], [], _LIMIT_S)
                line = process.stdout.readline() if ready else ""
                verdicts.append(line.strip() == "1")
                if not line:
                    process.kill()
                    break
            else:
                process.stdin.close()
    return verdicts
