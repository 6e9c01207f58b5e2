"""What every benchmark here shares: options, interleaved rounds in CPU seconds, claims, one JSON line at the end.

CPU seconds, because machines are shared; one thread, because the models are tiny; medians over interleaved rounds,
so that a slow minute hits all sides.
"""

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """A number that is to be at least ``goal``, or ``at_most`` that. NaN: it could not be measured, so it is missed."""

    value: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    @property
    def texts(self) -> tuple[str, str, str]:
        """Value, goal and whether it is met, in words."""
        value = "not measured" if math.isnan(self.value) else f"{self.value:.2f}"
        return value, f"at {'most' if self.at_most else 'least'} {self.goal:g}", "met" if self.met else "missed"

    def as_json(self) -> dict[str, object]:
        value = None if math.isnan(self.value) else round(self.value, 3)
        return {"value": value, "goal": self.goal, "at_most": self.at_most, "met": self.met}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Claim":
        """Build a claim from ``as_json``."""
        return cls(math.nan if found["value"] is None else found["value"], found["goal"], found["at_most"])


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; ``report`` takes what it parsed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--strict", action="store_true", help="end with status 1 if a goal is missed or not measured")
    return parser


def seconds(device: str = "cpu") -> float:
    """Return CPU seconds so far; with a GPU, seconds on the clock when it has finished its work."""
    if not device.startswith("cuda"):
        return time.process_time()
    import torch

    torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_bytes(device: str = "cpu") -> float:
    """Return the most memory used so far: of the process, or allocated on the GPU."""
    if not device.startswith("cuda"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    import torch

    return float(torch.cuda.max_memory_allocated(device))


def median_seconds(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: bool = True,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Measure median seconds of every side, CPU time unless ``clock`` tells another; each runs once unmeasured where
    ``warm``, then ``rounds`` times in turn.
    """
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values() if warm else ():
        work()
    for _ in range(rounds):
        for name, work in sides.items():
            begun = clock()
            work()
            spent[name].append(clock() - begun)
    return {name: median(values) for name, values in spent.items()}


def report(title: str, rows: Mapping[str, str], claims: Mapping[str, Claim], given: argparse.Namespace) -> None:
    """Print rows for people, or all as one JSON object for programs."""
    if given.json:
        print(json.dumps({"rows": rows, "claims": {name: claim.as_json() for name, claim in claims.items()}}))
    else:
        print(title)
        for name, text in rows.items():
            print(f"  {name:<44} {text}")
        for name, claim in claims.items():
            value, goal, met = claim.texts
            print(f"  {name:<44} {value} (goal {goal}: {met})")
    if given.strict and not all(claim.met for claim in claims.values()):
        sys.exit(1)
