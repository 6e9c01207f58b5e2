"""Runs every benchmark and prints one table: claim, value, goal, met. ``make bench`` calls it.

Each benchmark also replaces its rows in ``docs/reports/performance.md``, with date and machine.

    python benchmarks/summary.py [--strict] [--only NAME ...]
"""

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
_TABLE = re.compile(r"(<!-- claims -->\n)(.*?)(<!-- end of claims -->)", re.DOTALL)
_HEAD = "| claim | value | goal | | measured |\n|---|---|---|---|---|\n"


def claims_of(name: str, arguments: Sequence[str]) -> dict[str, Claim]:
    """Run ``benchmarks/NAME.py`` for its claims. Raises ``SystemExit`` if it fails."""
    command = [sys.executable, str(ROOT / f"benchmarks/{name}.py"), "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks/{name}.py ended with status {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {f"{name}: {claim}": Claim.of(value) for claim, value in found["claims"].items()}


def machine() -> str:
    """Return date, processor and load."""
    model = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists() and (named := re.search(r"model name\s*: (.*)", info.read_text())):
        model = named[1]
    return f"{time.strftime('%d %B %Y')}, {os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f} at the end"


def with_rows(page: str, name: str, claims: dict[str, Claim]) -> str:
    """Replace the rows of the benchmark ``name`` in the table of ``page``."""
    measured = machine()

    def table(found: re.Match[str]) -> str:
        rows = {other: re.findall(rf"^\| {other}: .*\n", found[2], re.MULTILINE) for other in NAMES}
        rows[name] = [f"| {claim} | {' | '.join(value.texts)} | {measured} |\n" for claim, value in claims.items()]
        return found[1] + _HEAD + "".join(row for own in rows.values() for row in own) + found[3]

    return _TABLE.sub(table, page)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    options, others = parser.parse_known_args()
    claims: dict[str, Claim] = {}
    for name in options.only:
        print(f"{name}: running", file=sys.stderr, flush=True)
        own = claims_of(name, others)
        PAGE.write_text(with_rows(PAGE.read_text("utf-8"), name, own), "utf-8")
        claims |= own
    report(machine(), {}, claims, options)


if __name__ == "__main__":
    main()
