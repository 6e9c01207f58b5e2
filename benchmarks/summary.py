"""Runs every benchmark and prints one table: claim, value, goal, met. ``make bench`` calls it.

The table also replaces the one in ``docs/reports/performance.md``, with date and machine, if all benchmarks ran.

    python benchmarks/summary.py [--strict] [--only NAME ...]
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Claim, command_line, report

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reports/performance.md"
NAMES = ("update", "rollout", "orchestration", "sandbox", "data", "embedded_engine")
_TABLE = re.compile(r"(<!-- claims -->\n).*?(<!-- end of claims -->)", re.DOTALL)


def claims_of(name: str, arguments: Sequence[str]) -> dict[str, Claim]:
    """What ``benchmarks/NAME.py`` claims. Raises ``SystemExit`` if it fails."""
    command = [sys.executable, str(ROOT / f"benchmarks/{name}.py"), "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks/{name}.py ended with status {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {f"{name}: {claim}": Claim.of(value) for claim, value in found["claims"].items()}


def machine() -> str:
    """Date, processor and load."""
    model = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists() and (named := re.search(r"model name\s*: (.*)", info.read_text())):
        model = named[1]
    return f"{time.strftime('%d %B %Y')}, {os.cpu_count()} cores ({model}), load {os.getloadavg()[0]:.1f} at the end"


def table(claims: dict[str, Claim]) -> str:
    rows = ["| claim | value | goal | |", "|---|---|---|---|"]
    rows += [f"| {name} | {' | '.join(claim.texts)} |" for name, claim in claims.items()]
    return "\n".join([f"{machine()}:", "", *rows, ""])


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    options, others = parser.parse_known_args()
    claims: dict[str, Claim] = {}
    for name in options.only:
        print(f"{name}: running", file=sys.stderr, flush=True)
        claims |= claims_of(name, others)
    if set(options.only) == set(NAMES):
        PAGE.write_text(_TABLE.sub(lambda found: found[1] + table(claims) + found[2], PAGE.read_text("utf-8")), "utf-8")
    report(machine(), {}, claims, options)


if __name__ == "__main__":
    main()
